//! `--debuginfod` against the real server, against bad ones, and the promise that nobody is asked without it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::report::fixture::{BASE, Elf, Run, Scene, Taken, profiler, subcommand};

const SOURCE: &str = "
volatile int sink;
static inline __attribute__((always_inline)) int inner(int x) { sink += x; sink ^= x; return sink; }
static __attribute__((noinline)) int leaf(int x) { sink += x; x = inner(x); sink *= x; return sink + x; }
int main(void) { sink = 1; return leaf(3) + leaf(4) + sink; }
";

/// A stripped program that was sampled, and what was stripped from it.
struct Bench {
    dir: tempfile::TempDir,
    app: PathBuf,
    debug: PathBuf,
    capture: PathBuf,
    build_id: String,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        fs::write(path("app.c"), SOURCE).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-g", "-fcf-protection=none", "-Wl,--build-id", "-o"]);
        run(gcc.args([path("whole"), path("app.c")]));
        let (app, debug) = (path("app"), path("app.debug"));
        let mut objcopy = Command::new("objcopy");
        run(objcopy
            .arg("--only-keep-debug")
            .args([path("whole"), debug.clone()]));
        run(Command::new("strip")
            .arg("-o")
            .args([app.clone(), path("whole")]));

        let elf = Elf::open(path("whole"));
        let mapped = Elf::open(app.clone()).mapped();
        let mut s = Scene::new();
        let process = s.process(100, 500);
        s.image(process, 0, 0, "app");
        s.map(process, 0, BASE, &mapped);
        let at = |function: &str| BASE + elf.offset(function) + 9;
        s.sample(Taken {
            user: &[at("leaf"), at("main")],
            ..Taken::of(process, 100, "app", 1_000_000_000)
        });
        let capture = path("run.bprof");
        fs::write(&capture, s.finish()).unwrap();
        fs::remove_file(path("whole")).unwrap();
        Bench {
            app,
            debug,
            capture,
            build_id: mapped.build_id.unwrap().to_string(),
            dir,
        }
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// `profiler report VIEW --debuginfod CAPTURE` with this server and two seconds to answer.
    fn report(&self, view: &str, url: &str) -> Command {
        let mut command = profiler(&[view, "--debuginfod"]);
        command.arg(&self.capture);
        self.with_env(&mut command, url);
        command
    }

    fn with_env(&self, command: &mut Command, url: &str) {
        command
            .env("DEBUGINFOD_URLS", url)
            .env("DEBUGINFOD_TIMEOUT", "2")
            .env("DEBUGINFOD_CACHE_PATH", self.cache());
        for name in [
            "DEBUGINFOD_MAXSIZE",
            "DEBUGINFOD_MAXTIME",
            "http_proxy",
            "HTTP_PROXY",
        ] {
            command.env_remove(name);
        }
    }

    /// The files in the cache.
    fn cached(&self) -> Vec<String> {
        let below = self.cache().join(&self.build_id);
        let entries = fs::read_dir(below).into_iter().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// The server of Debian's package `debuginfod`, over one directory.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(files: &Path, scratch: &Path, build_id: &str) -> Server {
        let port = free_port();
        let child = Command::new("debuginfod")
            .arg("-d")
            .arg(scratch.join("debuginfod.sqlite"))
            .args(["-p", &port.to_string(), "-F"])
            .arg(files)
            .env_remove("DEBUGINFOD_URLS")
            .env("DEBUGINFOD_CACHE_PATH", scratch.join("server-cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.expect("debuginfod is needed: make deps installs it");
        let server = Server {
            child,
            url: format!("http://127.0.0.1:{port}"),
        };
        // It scans in the background.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !["debuginfo", "executable"].iter().all(|what| {
            let request = format!("GET /buildid/{build_id}/{what} HTTP/1.0\r\n\r\n");
            let answer = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
                stream.write_all(request.as_bytes())?;
                let mut start = [0; 12];
                stream.read_exact(&mut start)?;
                Ok(start)
            });
            answer.is_ok_and(|start| start.ends_with(b" 200"))
        }) {
            assert!(
                Instant::now() < deadline,
                "debuginfod does not have {build_id}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server that gives `answer` to every request, byte for byte; for as long as the test runs.
fn answering(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&answer);
        }
    });
    url
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const NAMED: &str = "app-100;main;leaf";

#[test]
fn names_come_from_a_real_server_and_are_there_offline_afterwards() {
    let bench = Bench::new();
    let served = bench.dir.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::copy(&bench.app, served.join("app")).unwrap();
    fs::rename(&bench.debug, served.join("app.debug")).unwrap();
    let server = Server::start(&served, bench.dir.path(), &bench.build_id);
    let url = server.url.clone();

    // The program is here, its symbols are not.
    let without = Run::report(&["--folded"], &bench.capture).ok();
    assert!(without.starts_with("app-100;[app+0x"), "{without}");
    let run = Run::of(&mut bench.report("--standard", &url));
    assert!(
        run.out.contains("leaf+0x9 (app) "),
        "{} {}",
        run.out,
        run.err
    );
    assert!(run.out.contains("app.c:4"), "{}", run.out);
    let standard = run.ok();
    assert_eq!(bench.cached(), ["debuginfo"]);

    // Neither is.
    fs::remove_file(&bench.app).unwrap();
    assert_eq!(
        Run::of(&mut bench.report("--standard", &url)).ok(),
        standard
    );
    assert_eq!(bench.cached(), ["debuginfo", "executable"]);

    // What is packed from there needs neither the server nor its files.
    let packed = bench.dir.path().join("packed.bprof");
    fs::copy(&bench.capture, &packed).unwrap();
    let mut pack = subcommand("pack", &["--debuginfod"]);
    bench.with_env(pack.arg(&packed), &url);
    Run::of(&mut pack).ok();

    drop(server);
    let started = Instant::now();
    let run = Run::of(&mut bench.report("--standard", &url));
    assert_eq!(run.err, "", "nobody is asked for what is here");
    assert_eq!(run.ok(), standard);
    assert!(started.elapsed() < Duration::from_secs(10));
    fs::remove_dir_all(bench.cache()).unwrap();
    assert_eq!(Run::report(&["--standard"], &packed).ok(), standard);
}

#[test]
fn without_the_option_nobody_is_asked() {
    let bench = Bench::new();
    fs::remove_file(&bench.app).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for command in [
        &mut profiler(&["--folded"]),
        &mut profiler(&["--missing"]),
        &mut subcommand("pack", &[""; 0]),
        &mut subcommand("info", &[""; 0]),
    ] {
        bench.with_env(command.arg(&bench.capture), &url);
        Run::of(command).ok();
        let asked = listener.accept().map(drop).map_err(|err| err.kind());
        assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock), "{command:?}");
    }
    assert!(!bench.cache().exists());
}

/// Three files are missing; each would be asked for in two forms.
fn three_files(dir: &Path) -> PathBuf {
    let mut s = Scene::new();
    for (i, name) in ["one", "two", "three"].into_iter().enumerate() {
        let source =
            format!("int {name}(void) {{ return {i}; }} int main(void) {{ return {name}(); }}");
        let elf = Elf::build(dir, name, &source);
        let pid = 100 + i as u32;
        let process = s.process(pid, 500);
        s.image(process, 0, 0, name);
        s.map(process, 0, BASE, &elf.mapped());
        s.sample(Taken {
            user: &[BASE + elf.offset(name)],
            ..Taken::of(process, pid, name, 1_000_000_000)
        });
        fs::remove_file(&elf.path).unwrap();
    }
    let capture = dir.join("three.bprof");
    fs::write(&capture, s.finish()).unwrap();
    capture
}

#[test]
fn a_dead_server_costs_one_time_out_in_all_and_the_next_one_is_asked() {
    let bench = Bench::new();
    let capture = three_files(bench.dir.path());
    let report = |url: &str| {
        let mut command = profiler(&["--folded", "--debuginfod"]);
        bench.with_env(command.arg(&capture), url);
        let started = Instant::now();
        let run = Run::of(&mut command);
        let time = started.elapsed();
        assert_eq!(run.out.lines().count(), 3, "{}", run.out);
        assert_eq!(run.code, Some(0), "{}", run.err);
        (run.err, time)
    };
    // Nobody listens.
    let closed = format!("http://127.0.0.1:{}", free_port());
    let (err, time) = report(&closed);
    assert!(
        err.contains(&format!("{closed}: ")) && err.contains("not asked again"),
        "{err}"
    );
    assert!(time < Duration::from_secs(3), "{time:?}");

    // Somebody listens and never answers: two seconds in all, not for each of six files.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (err, time) = report(&url);
    assert_eq!(err.matches("no answer within 2 s").count(), 1, "{err}");
    assert!(
        time >= Duration::from_secs(2) && time < Duration::from_secs(4),
        "{time:?}"
    );

    // The next server is asked all the same.
    let debug = fs::read(&bench.debug).unwrap();
    let run =
        Run::of(&mut bench.report("--folded", &format!("{closed} {}", answering(ok(&debug)))));
    assert!(run.out.starts_with(NAMED), "{} {}", run.out, run.err);
}

#[test]
fn bad_answers_are_told_and_not_kept() {
    let bench = Bench::new();
    let other = Elf::build(bench.dir.path(), "other", "int main(void) { return 0; }");
    let other = fs::read(&other.path).unwrap();
    let debug = fs::read(&bench.debug).unwrap();
    let mut cut = ok(&debug);
    cut.truncate(cut.len() - 100);
    let redirect = |to: &str| {
        format!(
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .into_bytes()
    };
    for (answer, told) in [
        (ok(&other), "not used: it has build ID"),
        (ok(b"no ELF file"), "not used: it has no build ID"),
        (cut, "not asked again"),
        (
            b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "answers with status 500",
        ),
        (b"\x00\x01garbage\r\n\r\n".to_vec(), "not asked again"),
        (redirect("/again"), "not asked again"),
        (redirect("file:///etc/passwd"), "not asked again"),
    ] {
        let run = Run::of(&mut bench.report("--folded", &answering(answer)));
        assert!(run.err.contains(told), "{told}: {}", run.err);
        assert!(
            run.out.starts_with("app-100;[app+0x"),
            "{told}: {}",
            run.out
        );
        assert_eq!(run.code, Some(0), "{told}");
        assert_eq!(bench.cached(), [""; 0], "{told}");
    }
    // A server that does not have it is no news.
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    let run = Run::of(&mut bench.report("--folded", &answering(missing)));
    assert!(!run.err.contains("http://"), "{}", run.err);

    let mut command = bench.report("--folded", &answering(ok(&debug)));
    let run = Run::of(command.env("DEBUGINFOD_MAXSIZE", "1000"));
    assert!(run.err.contains("larger than 1000 bytes"), "{}", run.err);
    assert_eq!(bench.cached(), [""; 0]);
    // A good one after all that.
    let run = Run::of(&mut bench.report("--folded", &answering(ok(&debug))));
    assert!(run.out.starts_with(NAMED), "{} {}", run.out, run.err);
    // A cache that somebody has spoilt is not believed.
    fs::write(
        bench.cache().join(&bench.build_id).join("debuginfo"),
        &other,
    )
    .unwrap();
    let run = Run::of(&mut bench.report("--folded", &answering(ok(&debug))));
    assert!(run.out.starts_with(NAMED), "{} {}", run.out, run.err);
}

#[test]
fn a_server_that_drips_is_given_up() {
    let bench = Bench::new();
    let debug = fs::read(&bench.debug).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let answer = ok(&debug);
        for byte in answer.chunks(64) {
            if stream.write_all(byte).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let started = Instant::now();
    let run = Run::of(&mut bench.report("--folded", &url));
    assert!(run.err.contains("sends too slowly"), "{}", run.err);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(bench.cached(), [""; 0]);
}

#[test]
fn ctrl_c_ends_a_download_at_once_and_leaves_nothing() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut command = bench.report("--folded", &url);
    command.env("DEBUGINFOD_TIMEOUT", "60");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It has begun to send, and then nothing more comes.
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    let read = stream.read(&mut request).unwrap();
    let request = String::from_utf8_lossy(&request[..read]).into_owned();
    let line = format!("GET /buildid/{}/debuginfo HTTP/1.1", bench.build_id);
    assert!(request.starts_with(&line), "{request}");
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n\x7fELF")
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let started = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(bench.cached(), [""; 0]);
}

#[test]
fn servers_must_be_named() {
    let bench = Bench::new();
    for (urls, told) in [
        ("", "--debuginfod: set DEBUGINFOD_URLS"),
        (
            "ftp://x",
            "ftp://x in DEBUGINFOD_URLS is not an http:// or https:// URL",
        ),
    ] {
        let run = Run::of(&mut bench.report("--folded", urls));
        assert_eq!(run.code, Some(1));
        assert!(run.err.contains(told), "{}", run.err);
    }
}
