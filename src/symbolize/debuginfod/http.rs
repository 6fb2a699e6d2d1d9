//! One download over HTTP or HTTPS.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write, stderr};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Failure, Limits};

/// Bytes that must come in each time in which something must happen.
const LEAST: u64 = 100 << 10;

/// GETs a URL into `file`; `false` when the server does not have it.
pub(super) fn fetch(url: &str, file: &mut File, limits: &Limits) -> Result<bool, Failure> {
    let timeout = Some(limits.timeout);
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(5)
        .user_agent(concat!("profiler/", env!("CARGO_PKG_VERSION")))
        .timeout_global(limits.total)
        .timeout_resolve(timeout)
        .timeout_connect(timeout)
        .timeout_send_request(timeout)
        .timeout_recv_response(timeout)
        .timeout_per_read(timeout)
        .build();
    let failed = |err: ureq::Error| match err {
        ureq::Error::Timeout(_) => Failure::Server(format!(
            "no answer within {} s (DEBUGINFOD_TIMEOUT)",
            limits.timeout.as_secs()
        )),
        err => Failure::Server(err.to_string()),
    };
    let bar = if stderr().is_terminal() {
        let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.set_message(format!("asking {url}"));
        bar.tick();
        bar
    } else {
        ProgressBar::hidden()
    };
    let answer = ureq::Agent::new_with_config(config).get(url).call();
    let answer = answer.map_err(failed)?;
    match answer.status().as_u16() {
        200 => {}
        404 | 410 => return Ok(false),
        status => return Err(Failure::Server(format!("answers with status {status}"))),
    }
    let header = |name| answer.headers().get(name)?.to_str().ok()?.parse().ok();
    let size: Option<u64> = header("content-length").or_else(|| header("x-debuginfod-size"));
    let too_large = || {
        Failure::File(format!(
            "larger than {} bytes (DEBUGINFOD_MAXSIZE)",
            limits.size
        ))
    };
    if size.is_some_and(|size| size > limits.size) {
        return Err(too_large());
    }
    bar.set_length(size.unwrap_or(0));
    bar.set_message(format!("downloading {url}"));
    let mut body = answer.into_body().into_reader();
    let mut chunk = vec![0; 64 << 10];
    let (mut bytes, mut checked) = (0u64, (Instant::now(), 0u64));
    loop {
        let read = match body.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(Failure::Server(format!("the download broke off: {err}"))),
        };
        bytes += read as u64;
        if bytes > limits.size {
            return Err(too_large());
        }
        let part = chunk.get(..read).unwrap_or_default();
        file.write_all(part)
            .map_err(|err| Failure::File(format!("cannot be kept: {err}")))?;
        bar.set_position(bytes);
        // A server that sends a byte now and then is no better than one that sends none.
        if checked.0.elapsed() >= limits.timeout {
            if bytes - checked.1 < LEAST {
                let message = "sends too slowly (DEBUGINFOD_TIMEOUT)";
                return Err(Failure::Server(message.to_owned()));
            }
            checked = (Instant::now(), bytes);
        }
    }
    bar.finish_and_clear();
    if size.is_some_and(|size| size != bytes) {
        return Err(Failure::File(format!("only {bytes} bytes came")));
    }
    Ok(true)
}
