//! Prints the function of a capture that was sampled most, and how much of it could be named.
//!
//!     cargo run --no-default-features --example hottest -- run.bprof

use std::path::PathBuf;
use std::process::ExitCode;

use bprof::capture::{CaptureError, Reader};
use bprof::pipeline::{self, Request};
use bprof::report::top;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: hottest CAPTURE");
        return ExitCode::from(2);
    };
    match hottest(&path) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("hottest: {}: {err}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// The function with most samples of its own, in words.
pub fn hottest(path: &std::path::Path) -> Result<String, CaptureError> {
    let reader = Reader::open(path)?;
    // Names come from the capture itself and from this machine's files, if they are those that were recorded.
    let profile = pipeline::profile(&reader, Request::default(), &mut (), &mut |message| {
        eprintln!("{message}")
    });
    // Most samples of its own first.
    let functions = top::functions(&profile);
    let Some(((name, module), counts)) = functions.first() else {
        return Ok("no samples with a stack".to_owned());
    };
    let (name, module) = (profile.names.text(*name), profile.names.text(*module));
    let (own, all) = (counts.own, profile.total_weight());
    let named = profile.naming.user_percent().unwrap_or(100.0);
    Ok(format!(
        "{name} ({module}): {own} of {all} samples; {named:.1} % of the user frames have names, {} samples lost",
        profile.about.lost
    ))
}
