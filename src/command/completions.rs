//! `profiler completions` and `profiler man`: what shells and `man` read, made from the command line itself.

use std::fs;
use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::{Cli, CompletionsArgs, ManArgs};

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "profiler", &mut script);
    print(&script)
}

/// Writes a man page for the program and for each command into a directory, or prints that of the program.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut root = Cli::command();
    // Names as in `profiler report` are only known once it is built.
    root.build();
    let Some(dir) = &args.directory else {
        return print(&page(&root)?);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    write(&dir.join("profiler.1"), &page(&root)?)?;
    let commands = root.get_subcommands();
    for command in commands.filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        write(
            &dir.join(format!("profiler-{}.1", command.get_name())),
            &page(command)?,
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn write(path: &Path, page: &[u8]) -> anyhow::Result<()> {
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // Whoever read us has seen enough.
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => result
            .map(|()| ExitCode::SUCCESS)
            .context("cannot write to standard output"),
    }
}
