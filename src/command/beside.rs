//! A capture made beside its place, and put there when it is whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

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

/// A new file beside its place; it is taken away unless it is put there.
pub struct Beside {
    temporary: PathBuf,
    out: PathBuf,
}

impl Beside {
    /// Makes it, for its owner only.
    pub fn create(out: &Path) -> Result<(Beside, File)> {
        let mut name = OsString::from(".");
        name.push(out.file_name().context("no file name")?);
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = out.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .context("no new file beside it")?;
        place::give_to_invoker(&file);
        let out = out.to_owned();
        Ok((Beside { temporary, out }, file))
    }

    /// Where it is until then.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name; a capture of that name is kept, and that is told.
    pub fn put_in_place(self, file: &File) -> Result<()> {
        file.sync_data()?;
        if let Some(old) = place::make_room(&self.out)? {
            tell(&format!(
                "{} was there and is {} now",
                self.out.display(),
                old.display()
            ));
        }
        fs::rename(&self.temporary, &self.out)?;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}
