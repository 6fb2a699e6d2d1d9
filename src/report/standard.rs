//! `--standard`: every sample in time order, with all that is known about each frame.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::ops::Range;

use hashbrown::HashMap;

use crate::event::sample_flags;
use crate::profile::{About, Names, Naming, Resolution, SampleFrame, SampleView, SymbolFrame};

use super::text::escaped;
use super::{folded, verdict};

/// Writes what opens the report.
pub fn opening(about: &About, out: &mut dyn Write) -> io::Result<()> {
    verdict::opening(about)
        .iter()
        .try_for_each(|line| writeln!(out, "# {line}"))
}

/// Text of frames remembered at most, in bytes.
const REMEMBERED: usize = 4 << 20;

/// Writes samples. Most frames come again and again: their lines are remembered.
#[derive(Debug, Default)]
pub struct Samples {
    /// Where in `text` the lines of (address, place) are.
    lines: HashMap<(u64, u32), Range<usize>>,
    text: String,
    block: String,
}

impl Samples {
    /// Writes one sample as a block that ends in an empty line. Places must mean the same as in all calls before.
    pub fn write(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        // Writing to a string does not fail.
        let _ = self.block(about, names, sample, &mut block);
        let result = out.write_all(block.as_bytes());
        self.block = block;
        result
    }

    fn block(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
        out: &mut String,
    ) -> fmt::Result {
        let event = about
            .events
            .get(usize::from(sample.event))
            .map_or("?", |e| &e.name);
        let cpu = sample.cpu.map_or("?".to_owned(), |cpu| cpu.to_string());
        write!(
            out,
            "{} {} {}/{} ({}) [cpu {cpu}] {}",
            verdict::wall_time(about, sample.time),
            escaped(sample.comm),
            sample.pid,
            sample.tid,
            escaped(sample.process),
            escaped(event)
        )?;
        if sample.weight != 1 {
            write!(out, " {}", sample.weight)?;
        }
        out.push('\n');
        let cut = |flag: u8| sample.flags & flag != 0;
        for (title, frames, flag) in [
            ("  Kernel:\n", sample.kernel, sample_flags::KERNEL_TRUNCATED),
            ("  Userspace:\n", sample.user, sample_flags::USER_TRUNCATED),
        ] {
            if frames.is_empty() {
                continue;
            }
            out.push_str(title);
            for frame in frames {
                self.lines(frame, names, out)?;
            }
            if cut(flag) {
                writeln!(out, "    {}", folded::TRUNCATED)?;
            }
        }
        if cut(sample_flags::USER_UNREADABLE) {
            out.push_str("  (user stack unreadable)\n");
        }
        out.push('\n');
        Ok(())
    }

    /// The lines of one frame: innermost inlined functions come first, the function they are in last.
    fn lines(&mut self, frame: &SampleFrame<'_>, names: &Names, out: &mut String) -> fmt::Result {
        let key = (frame.address, frame.place);
        if let Some(known) = self.lines.get(&key) {
            out.push_str(self.text.get(known.clone()).unwrap_or_default());
            return Ok(());
        }
        if self.text.len() > REMEMBERED || self.lines.len() > REMEMBERED / 64 {
            self.lines.clear();
            self.text.clear();
        }
        let start = self.text.len();
        let resolution = frame.resolution;
        for (depth, part) in resolution.chain.iter().enumerate().rev() {
            line(
                frame.address,
                resolution,
                depth,
                part,
                names,
                &mut self.text,
            )?;
        }
        let range = start..self.text.len();
        out.push_str(self.text.get(range.clone()).unwrap_or_default());
        self.lines.insert(key, range);
        Ok(())
    }
}

/// Writes what only the end knows: losses by cause, damage found on the way, names.
pub fn closing(
    about: &About,
    damage: &[String],
    naming: &Naming,
    out: &mut dyn Write,
) -> io::Result<()> {
    let damage = damage
        .iter()
        .map(|d| format!("DAMAGED, this report is partial: {}", escaped(d)));
    verdict::closing(about, naming)
        .into_iter()
        .chain(damage)
        .try_for_each(|line| writeln!(out, "# {line}"))
}

fn line(
    address: u64,
    resolution: &Resolution,
    depth: usize,
    part: &SymbolFrame,
    names: &Names,
    out: &mut String,
) -> fmt::Result {
    let Some(frame) = names.frames().get(part.frame as usize) else {
        return Ok(());
    };
    write!(
        out,
        "    {address:016x} {}",
        escaped(names.text(frame.name))
    )?;
    match resolution.offset {
        _ if depth > 0 => write!(out, " (inlined)")?,
        Some(offset) => write!(out, "+{offset:#x}")?,
        None => {}
    }
    let module = names.text(frame.module);
    if !module.is_empty() {
        write!(out, " ({})", escaped(module))?;
    }
    if let Some(source) = part.source {
        write!(out, " {}:{}", escaped(names.text(source.file)), source.line)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Pid, Timestamp};
    use crate::profile::{Event, Frame, FrameKind, SourceLine};

    #[test]
    fn a_block_has_everything_known_of_a_sample() {
        let mut names = Names::default();
        let mut part = |name: &str, module: &str, kind, line: u32| SymbolFrame {
            frame: {
                let frame = Frame::new(names.intern(name), names.intern(module), kind);
                names.frame_id(frame)
            },
            source: (line > 0).then(|| SourceLine {
                file: names.intern("/src/a b.c"),
                line,
            }),
        };
        let resolution = |chain: Vec<SymbolFrame>, offset| Resolution {
            chain: chain.into(),
            offset,
            exact: None,
            unnamed: None,
            unverified: false,
        };
        let kernel = resolution(
            vec![part("irq", "[kernel]", FrameKind::Kernel, 0)],
            Some(16),
        );
        let outer = part("main", "app", FrameKind::User, 10);
        let inner = part("Vec<u8;\t2>", "app", FrameKind::User, 3);
        let user = resolution(vec![outer, inner], Some(5));
        let root = resolution(vec![part("[anon]", "[anon]", FrameKind::User, 0)], None);
        let about = About {
            events: vec![Event {
                name: "cpu-clock".into(),
                rate: "99 Hz".into(),
            }],
            ..About::default()
        };
        let mut out = Vec::new();
        let frame = |address, place, resolution| SampleFrame {
            address,
            place,
            resolution,
            file: None,
        };
        let view = SampleView {
            time: Timestamp(1_000_000_042),
            cpu: Some(3),
            pid: Pid(7),
            tid: Pid(8),
            comm: "wor\nker",
            process: "app",
            group: "app-7",
            event: 0,
            flags: sample_flags::USER_TRUNCATED,
            weight: 1,
            kernel: &[frame(0xffff_ffff_8100_0010, 1, &kernel)],
            user: &[frame(0x401005, 2, &user), frame(0x7f00_0000_0000, 3, &root)],
        };
        let expected = "\
1970-01-01T00:00:01.000000042Z wor\\nker 7/8 (app) [cpu 3] cpu-clock
  Kernel:
    ffffffff81000010 irq+0x10 ([kernel])
  Userspace:
    0000000000401005 Vec<u8;\\t2> (inlined) (app) /src/a b.c:3
    0000000000401005 main+0x5 (app) /src/a b.c:10
    00007f0000000000 [anon] ([anon])
    [truncated]

";
        let mut samples = Samples::default();
        // What is remembered of the first is used for the second.
        for _ in 0..2 {
            out.clear();
            samples.write(&about, &names, &view, &mut out).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
