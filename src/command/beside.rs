//! A capture that is put in its place when it is whole.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::nameless::Nameless;
use super::tell;
use crate::capture::place;

/// OUT must be another file than the capture it is made of; `otherwise` says what to do.
pub fn refuse_same(path: &Path, out: &Path, otherwise: &str) -> Result<()> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let capture = match path == Path::new("-") {
        // `< FILE`.
        true => fs::metadata("/dev/stdin"),
        false => fs::metadata(path),
    };
    let Ok(capture) = capture else {
        return Ok(());
    };
    let is_capture = |other: &Path| fs::metadata(other).is_ok_and(|other| same(&capture, &other));
    if is_capture(out) {
        bail!("{} is the capture itself; {otherwise}", out.display());
    }
    // A capture called OUT is kept as OUT.old, in the place of what is there.
    let old = place::old_name(out);
    if fs::symlink_metadata(out).is_ok() && is_capture(&old) {
        bail!(
            "{} would replace {}, which is the capture itself; {otherwise}",
            out.display(),
            old.display()
        );
    }
    Ok(())
}

/// A new file for a place; nothing is left of it unless it is put there.
pub struct Beside {
    new: Nameless,
    out: PathBuf,
}

impl Beside {
    /// Makes it, for its owner only.
    pub fn create(out: &Path) -> Result<(Beside, File)> {
        let new = Nameless::create(out, 0o600)?;
        place::give_to_invoker(&new.file);
        let file = new.file.try_clone()?;
        let out = out.to_owned();
        Ok((Beside { new, out }, file))
    }

    /// Where it can be read until then.
    pub fn path(&self) -> PathBuf {
        self.new.path()
    }

    /// Gives it its name; a capture of that name is kept, and that is told.
    pub fn put_in_place(mut self, file: &File) -> Result<()> {
        file.sync_data()?;
        if let Some(old) = place::make_room(&self.out)? {
            tell(&format!(
                "{} was there and is {} now",
                self.out.display(),
                old.display()
            ));
        }
        Ok(self.new.put_in_place()?)
    }
}
