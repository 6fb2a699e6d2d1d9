//! A browser to click in: Debian's chromium, without a window, told what to do over WebDriver by chromedriver.
//!
//! <https://www.w3.org/TR/webdriver2/> has the requests; `goog/cdp` and `se/log` are chromedriver's own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A chromium takes both CPUs of a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    _user_data: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Places on the page, in CSS pixels of the window.
pub type Point = (f64, f64);

impl Browser {
    /// A new browser, or `None` where there is none and that is no failure.
    pub fn start() -> Option<Browser> {
        let alone = ONE_AT_A_TIME
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let mut command = Command::new("chromedriver");
        command
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut driver = match command.spawn() {
            Ok(driver) => driver,
            Err(err) if std::env::var_os("CI").is_some() => {
                panic!("chromedriver: {err}; make test-deps installs it")
            }
            Err(err) => {
                eprintln!(
                    "NOT TESTED in a browser: chromedriver: {err}. As root: make test-deps (chromium, chromium-driver)"
                );
                return None;
            }
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let port = line.split_once("successfully on port ")?.1;
                Some(port.trim_end_matches('.').to_owned())
            })
            .expect("chromedriver says its port");
        // Nobody else reads what it says.
        std::thread::spawn(move || lines.for_each(drop));
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        let user_data = tempfile::tempdir().unwrap();
        let mut browser = Browser {
            driver,
            agent,
            session: format!("http://127.0.0.1:{port}/session"),
            _user_data: user_data,
            _alone: alone,
        };
        let user_data = format!("--user-data-dir={}", browser._user_data.path().display());
        let options = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": { "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--hide-scrollbars", user_data
            ] }
        } } });
        let session = browser.call("", &options);
        let id = session["sessionId"].as_str().unwrap();
        browser.session = format!("{}/{id}", browser.session);
        browser.window(1280, 900, false);
        // The page a browser begins with loads things of its own.
        browser.call("/url", &json!({ "url": "about:blank" }));
        browser.log("browser");
        browser.log("performance");
        Some(browser)
    }

    fn call(&self, command: &str, arguments: &Value) -> Value {
        self.try_call(command, arguments)
            .unwrap_or_else(|err| panic!("{command}: {err}"))
    }

    /// Sends a command: with arguments, or, where they are null, asks for something.
    fn try_call(&self, command: &str, arguments: &Value) -> Result<Value, String> {
        let url = format!("{}{command}", self.session);
        let response = match arguments {
            Value::Null => self.agent.get(&url).call(),
            _ => {
                let request = self.agent.post(&url).content_type("application/json");
                request.send(arguments.to_string())
            }
        };
        let mut response = response.map_err(|err| err.to_string())?;
        let body = response.body_mut().with_config().limit(256 << 20);
        let text = body.read_to_string().map_err(|err| err.to_string())?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|err| err.to_string())?;
        let value = answer["value"].take();
        match value.get("error") {
            Some(error) if error.is_string() => Err(format!(
                "{error}: {}",
                value["message"].as_str().unwrap_or("")
            )),
            _ => Ok(value),
        }
    }

    fn devtools(&self, command: &str, parameters: Value) -> Value {
        let arguments = json!({ "cmd": command, "params": parameters });
        self.call("/goog/cdp/execute", &arguments)
    }

    /// A window of that many CSS pixels; a phone's has two real ones for each, and is touched.
    pub fn window(&self, width: u32, height: u32, phone: bool) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone }),
        );
        self.devtools(
            "Emulation.setTouchEmulationEnabled",
            json!({ "enabled": phone }),
        );
    }

    /// What the user wants of colours: `light` or `dark`.
    pub fn scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Opens a file, and waits for it to be loaded.
    pub fn open(&self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.call("/url", &json!({ "url": url }));
    }

    /// Runs a function body and gives what it returns.
    pub fn script(&self, body: &str, arguments: &[Value]) -> Value {
        let arguments = json!({ "script": body, "args": arguments });
        self.call("/execute/sync", &arguments)
    }

    /// The text of what a selector finds first.
    pub fn text(&self, selector: &str) -> String {
        let text = self.script(
            "return document.querySelector(arguments[0]).textContent",
            &[json!(selector)],
        );
        text.as_str().unwrap().to_owned()
    }

    /// Waits until a function body returns true.
    #[track_caller]
    pub fn wait(&self, body: &str) {
        let start = Instant::now();
        while self.script(body, &[]) != json!(true) {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "still not so: {body}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses the mouse, or a finger, at the first point, and lets it go at the last.
    pub fn drag(&self, points: &[Point], pointer: &str) {
        let step = |&(x, y): &Point| json!({ "type": "pointerMove", "duration": 20, "origin": "viewport", "x": x.round(), "y": y.round() });
        let mut actions = vec![
            step(&points[0]),
            json!({ "type": "pointerDown", "button": 0 }),
        ];
        actions.extend(points[1..].iter().map(step));
        actions.push(json!({ "type": "pointerUp", "button": 0 }));
        let source = json!({
            "type": "pointer", "id": pointer, "parameters": { "pointerType": pointer }, "actions": actions
        });
        self.call("/actions", &json!({ "actions": [source] }));
    }

    pub fn click(&self, point: Point) {
        self.drag(&[point], "mouse");
    }

    /// Clicks what a selector finds first.
    pub fn click_on(&self, selector: &str) {
        self.click(self.middle(selector));
    }

    /// Where the middle of an element is, after it was scrolled to.
    pub fn middle(&self, selector: &str) -> Point {
        let [left, top, width, height] = self.bounds(selector);
        (left + width / 2.0, top + height / 2.0)
    }

    /// Left, top, width and height of an element, after it was scrolled to.
    pub fn bounds(&self, selector: &str) -> [f64; 4] {
        let bounds = self.script(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({ block: 'center', behavior: 'instant' });
             const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]",
            &[json!(selector)],
        );
        serde_json::from_value(bounds).unwrap()
    }

    /// Types into what has the focus. Keys without a character have those of
    /// <https://www.w3.org/TR/webdriver2/#keyboard-actions>.
    pub fn keys(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        let source = json!({ "type": "key", "id": "keys", "actions": actions });
        self.call("/actions", &json!({ "actions": [source] }));
    }

    /// Answers the question that is open.
    pub fn answer(&self, text: &str) {
        self.call("/alert/text", &json!({ "text": text }));
        self.call("/alert/accept", &json!({}));
    }

    /// What was logged since it was asked for last.
    fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self.call("/se/log", &json!({ "type": kind }));
        serde_json::from_value(entries).unwrap()
    }

    /// What no page of ours may do, so far: open a dialog, ask for anything but itself, have an error.
    pub fn misdeeds(&self) -> Vec<String> {
        let mut misdeeds = Vec::new();
        if let Ok(text) = self.try_call("/alert/text", &Value::Null) {
            misdeeds.push(format!("dialog: {text}"));
            self.call("/alert/dismiss", &json!({}));
        }
        for entry in self.log("browser") {
            misdeeds.push(format!("console: {}", entry["message"]));
        }
        let mut pages = 0;
        for entry in self.log("performance") {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            if message["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let parameters = &message["params"];
            let url = parameters["request"]["url"].as_str().unwrap();
            match parameters["type"] == "Document" && url.starts_with("file:///") {
                true => pages += 1,
                false => misdeeds.push(format!("request: {url:.200}")),
            }
        }
        assert!(pages > 0, "the log has not even the page itself");
        misdeeds
    }

    /// Fails when the page did what it may not do.
    #[track_caller]
    pub fn is_harmless(&self) {
        assert_eq!(self.misdeeds(), [""; 0]);
    }

    /// A picture of the window, for people: into the directory in `$SCREENSHOTS`, if that is set.
    pub fn picture(&self, name: &str) {
        if let Some(dir) = std::env::var_os("SCREENSHOTS") {
            let answer = self.devtools(
                "Page.captureScreenshot",
                json!({ "captureBeyondViewport": true }),
            );
            let file = Path::new(&dir).join(name);
            let encoded = answer["data"].as_str().unwrap();
            let decoded = base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                encoded.as_bytes(),
            );
            std::fs::write(file, decoded.unwrap()).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
