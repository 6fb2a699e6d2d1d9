//! New files that have no name until they are whole: whoever is killed while writing leaves nothing behind.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

/// A new file in the directory of its place. Where the file system has none without a name, it has one that begins with a dot and is taken
/// away unless the file is put in its place.
#[derive(Debug)]
pub struct Nameless {
    /// To be written to.
    pub file: File,
    target: PathBuf,
    /// Its name before it has its own, where it has one.
    temporary: Option<PathBuf>,
}

impl Nameless {
    /// One for `target`, with such a mode.
    pub fn create(target: &Path, mode: u32) -> anyhow::Result<Nameless> {
        let name = temporary(target)?;
        let (file, temporary) = match nameless(target, mode) {
            Some(file) => (file, None),
            None => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).mode(mode).open(&name);
                (
                    file.context("no file can be made in its directory")?,
                    Some(name),
                )
            }
        };
        Ok(Nameless {
            file,
            target: target.to_owned(),
            temporary,
        })
    }

    /// Where it can be opened until it is put in its place.
    pub fn path(&self) -> PathBuf {
        self.temporary
            .clone()
            .unwrap_or_else(|| of_descriptor(&self.file))
    }

    /// Puts it in its place, whatever is there.
    pub fn put_in_place(&mut self) -> io::Result<()> {
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => {
                // No link takes the place of a file, but a name does.
                let temporary = temporary(&self.target).map_err(io::Error::other)?;
                if let Err(err) = link(&self.file, &temporary) {
                    if err.kind() != io::ErrorKind::AlreadyExists {
                        return Err(err);
                    }
                    // Left by one that was killed right here and had our number, as processes of containers often have.
                    fs::remove_file(&temporary)?;
                    link(&self.file, &temporary)?;
                }
                temporary
            }
        };
        let renamed = fs::rename(&temporary, &self.target);
        if renamed.is_err() {
            self.temporary = Some(temporary);
        }
        renamed
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// `.NAME.PID.tmp` beside `target`.
fn temporary(target: &Path) -> anyhow::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(target.file_name().context("no file name")?);
    name.push(format!(".{}.tmp", std::process::id()));
    Ok(target.with_file_name(name))
}

/// A file without a name, where there can be one that can be given a name later.
fn nameless(target: &Path, mode: u32) -> Option<File> {
    let directory = match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, directory, flags, Mode::from_raw_mode(mode)).ok()?);
    // Its name is given through here.
    fs::metadata(of_descriptor(&file)).is_ok().then_some(file)
}

/// Gives a file without a name one.
fn link(file: &File, name: &Path) -> io::Result<()> {
    linkat(CWD, of_descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

fn of_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// With a name on the way and without.
    #[test]
    fn nothing_is_there_before_the_file_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        let names = || -> Vec<_> {
            let names = fs::read_dir(dir.path()).unwrap();
            names.map(|entry| entry.unwrap().file_name()).collect()
        };
        for (has_name, text) in [(false, "one"), (true, "two")] {
            let make = || {
                let mut new = Nameless::create(&target, 0o600).unwrap();
                if has_name {
                    new.temporary = Some(temporary(&target).unwrap());
                    new.file = File::create(new.path()).unwrap();
                }
                new.file.write_all(text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(new.path()).unwrap(), text);
                new
            };
            let before = names();
            drop(make());
            assert_eq!(names(), before);
            let mut new = make();
            let named = usize::from(new.temporary.is_some());
            assert_eq!(names().len(), before.len() + named);
            // What a killed process of our number has left is no obstacle.
            if named == 0 {
                fs::write(temporary(&target).unwrap(), "left").unwrap();
            }
            new.put_in_place().unwrap();
            assert_eq!(names(), ["out"]);
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
        }
        // What cannot be put there is not left elsewhere.
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        let mut new = Nameless::create(&into, 0o600).unwrap();
        assert!(new.put_in_place().is_err());
        drop(new);
        assert_eq!(names().len(), 2);
    }
}
