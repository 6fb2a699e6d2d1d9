//! `profiler pack`.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write, stderr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rustix::fs::FlockOperation;

use crate::capture::reader::DamageKind;
use crate::capture::{Appender, Pack, Reader, place};
use crate::cli::PackArgs;
use crate::counted::counted;
use crate::pipeline;
use crate::pipeline::packing::{Done, Level, NotPacked, Plan};
use crate::report::text::escaped;

use super::beside::{Beside, refuse_same};
use super::input::{capture, is_stdin, open, open_stdin, shown, tell_unnamed, unnamed};
use super::progress::Bar;
use super::{symbol_options, tell};

/// Packs. Where a file could not be packed the exit code is 0 all the same; it is named.
pub fn run(args: &PackArgs) -> Result<ExitCode> {
    let path = capture(&args.file);
    if is_stdin(path) && args.output.is_none() {
        bail!(
            "what is packed is appended to the capture: name its file, or with -o OUT where the packed one goes"
        );
    }
    let options = symbol_options(&args.names)?;
    if let Some(out) = &args.output {
        refuse_same(path, out, "leave -o out to pack it in place")?;
        place::check(out)?;
    }
    // Opened by the reader first, which refuses what is no file and no capture.
    let (reader, stdin) = match is_stdin(path) {
        true => open_stdin().map(|(reader, file)| (reader, Some(file)))?,
        false => {
            let reader = open(path).map_err(|err| unnamed(err, &args.file, "pack"))?;
            (reader, None)
        }
    };
    tell_unnamed(&args.file, path);
    if reader.is_merged() {
        bail!(
            "{} holds several captures: pack each where it was recorded, then merge them",
            shown(path)
        );
    }
    let input = match stdin {
        Some(file) => file,
        None => lock(path, args.output.is_none())?,
    };
    let is_same = reader.is_of(&input);
    if !is_same.with_context(|| path.display().to_string())? {
        bail!("{} was changed just now; try again", path.display());
    }
    let (packed, bad_frames) = reader.pack();

    let mut progress = Bar::new(reader.frames().len());
    let mut warn = |message: &str| tell(message);
    let hits = pipeline::hits(&reader, options, &mut progress, &mut warn);
    let bad_frames = bad_frames.iter().map(ToString::to_string);
    let damage: Vec<String> = hits
        .about
        .damage
        .iter()
        .cloned()
        .chain(bad_frames)
        .collect();
    check_damage(path, args.output.is_none(), &reader, &damage)?;

    let plan = Plan::new(hits, &packed, args.symbols, &mut warn);
    let target = args.output.as_deref().unwrap_or(path);
    // A pack that broke off in its last bytes lacks nothing but its index.
    let broke_off = reader.cut_bytes() > 0 && !packed.is_empty();
    if plan.is_empty() && args.output.is_none() && !broke_off {
        let what = if packed.is_empty() {
            "there is nothing to pack".to_owned()
        } else {
            format!(
                "all that is here of level {} is packed already",
                name(args.symbols)
            )
        };
        tell(&format!("{}: {what}; nothing was added", path.display()));
        tell_missing(&plan.missing);
        return Ok(ExitCode::SUCCESS);
    }
    let before = reader.whole_len();
    let (done, after) = match &args.output {
        None => {
            if reader.cut_bytes() > 0 {
                tell(&format!(
                    "{}: the last {} bytes are no whole frame (it was killed while it wrote) and are taken away",
                    path.display(),
                    reader.cut_bytes()
                ));
            }
            in_place(input, &reader, &packed, &plan)
                .with_context(|| format!("cannot pack {}; it is as it was", path.display()))?
        }
        Some(out) => copy(input, out, &reader, &packed, &plan)
            .with_context(|| format!("cannot write {}", out.display()))?,
    };
    tell(&summary(target, &plan, done, after.saturating_sub(before)));
    tell_missing(&plan.missing);
    Ok(ExitCode::SUCCESS)
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Hits => "hits",
        Level::Symtab => "symtab",
        Level::Full => "full",
    }
}

/// Opens the capture, for writing if it is to be packed in place, and sees to it that nobody else writes to it.
fn lock(path: &Path, in_place: bool) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(in_place)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = file.with_context(|| {
        let advice = if in_place {
            "; -o OUT writes a packed copy"
        } else {
            ""
        };
        format!("cannot open {}{advice}", path.display())
    })?;
    let operation = if in_place {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match rustix::fs::flock(&file, operation) {
        Err(rustix::io::Errno::WOULDBLOCK) => bail!(
            "{} is still being recorded, or being packed by another process; pack it when that has ended",
            path.display()
        ),
        // A file system without locks: nobody can have one.
        _ => Ok(file),
    }
}

/// A damaged capture is left as it is: what is appended to it could be taken for what is missing.
fn check_damage(path: &Path, in_place: bool, reader: &Reader, damage: &[String]) -> Result<()> {
    let foreign = |kind: &DamageKind| matches!(kind, DamageKind::Foreign { .. });
    if let Some(damage) = reader.damage().iter().find(|d| foreign(&d.kind)) {
        bail!(
            "{}: {damage}; nothing can be appended behind another capture",
            shown(path)
        );
    }
    let Some(first) = damage.first() else {
        return Ok(());
    };
    if in_place {
        bail!(
            "{} is damaged and left as it is; -o OUT writes a packed copy of it: {}",
            path.display(),
            damage.join("; ")
        );
    }
    let more = match damage.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tell(&format!(
        "warning: {} is damaged, and so is the copy: {first}{more}",
        shown(path)
    ));
    Ok(())
}

/// Appends to the capture itself. When that fails it is as long as it was.
fn in_place(mut file: File, reader: &Reader, packed: &Pack, plan: &Plan) -> Result<(Done, u64)> {
    let end = reader.whole_len();
    file.set_len(end)?;
    let written = file
        .seek(SeekFrom::Start(end))
        .map_err(anyhow::Error::from)
        .and_then(|_| append(&file, reader, packed, plan));
    match written {
        Ok(done) => {
            file.sync_data()?;
            Ok(done)
        }
        Err(err) => {
            file.set_len(end)?;
            Err(err)
        }
    }
}

/// Writes a packed copy beside OUT and puts it in place when it is whole.
fn copy(
    mut input: File,
    out: &Path,
    reader: &Reader,
    packed: &Pack,
    plan: &Plan,
) -> Result<(Done, u64)> {
    let (beside, mut file) = Beside::create(out)?;
    file.set_permissions(input.metadata()?.permissions())?;
    let end = reader.whole_len();
    input.rewind()?;
    let copied = io::copy(&mut input.take(end), &mut file)?;
    if copied < end {
        bail!("the capture became shorter while it was copied");
    }
    let done = append(&file, reader, packed, plan)?;
    beside.put_in_place(&file)?;
    Ok(done)
}

fn append(file: &File, reader: &Reader, packed: &Pack, plan: &Plan) -> Result<(Done, u64)> {
    let mut out = Appender::new(file, reader)?;
    let total = plan.file_bytes();
    let bar = (total > 0 && stderr().is_terminal()).then(|| {
        let style =
            ProgressStyle::with_template("packing {bar:30} {bytes}/{total_bytes}, {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(total).with_style(style)
    });
    let mut progress = |bytes| {
        if let Some(bar) = &bar {
            bar.inc(bytes);
        }
    };
    let done = plan.write(&mut out, packed, &mut progress, &mut |message| {
        tell(message)
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let done = done?;
    let (_, length) = out.finish()?;
    Ok((done, length))
}

fn summary(target: &Path, plan: &Plan, done: Done, added: u64) -> String {
    let mut parts = vec![counted(done.symbols, "symbol")];
    if done.tables > 0 {
        parts.push(counted(done.tables, "symbol table"));
    }
    if done.files > 0 {
        parts.push(counted(done.files, "file"));
    }
    format!(
        "{}: packed {} for the {} hit, {} added",
        target.display(),
        parts.join(", "),
        counted(plan.hit, "file"),
        HumanBytes(added)
    )
}

fn tell_missing(missing: &[NotPacked]) {
    if missing.is_empty() {
        return;
    }
    let mut text = format!(
        "profiler: warning: names of {} could not be packed; bring the files and pack again with --symfs DIR:\n",
        counted(missing.len(), "file")
    );
    for file in missing {
        let id = match &file.build_id {
            Some(id) => format!("build ID {id}"),
            None => "no build ID".to_owned(),
        };
        text.push_str(&format!(
            "  {} ({id}): {}, {}\n",
            escaped(&String::from_utf8_lossy(&file.path)),
            file.reason.label(),
            counted(file.frames, "frame")
        ));
    }
    let _ = stderr().write_all(text.as_bytes());
}
