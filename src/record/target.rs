//! Whom to sample, made concrete: threads that exist, a cgroup directory that is there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::bpf::Filter;
use super::options::Target;
use super::{cgroups, procfs};
use crate::event::Pid;

/// What has to be found or held open for a target.
#[derive(Debug)]
pub enum Found {
    /// All tasks, perhaps filtered in the kernel.
    Filtered(Kept),
    /// These processes.
    Processes(Vec<Pid>),
    /// These threads, and the processes they belong to.
    Threads(Vec<Pid>, Vec<Pid>),
    /// A command, not launched yet.
    Command,
}

/// What the sampling program keeps.
#[derive(Debug)]
pub enum Kept {
    /// Everything.
    All,
    /// A process group.
    ProcessGroup(u32),
    /// A session.
    Session(u32),
    /// An open cgroup directory.
    Cgroup(File),
}

impl Kept {
    /// As the program wants it.
    pub fn filter(&self) -> Filter<'_> {
        match self {
            Kept::All => Filter::None,
            Kept::ProcessGroup(id) => Filter::ProcessGroup(*id),
            Kept::Session(id) => Filter::Session(*id),
            Kept::Cgroup(dir) => Filter::Cgroup(dir.as_fd()),
        }
    }
}

/// Looks for what `target` names. An error names what is not there; where others of a list are there, `warn` is told.
pub fn find(target: &Target, warn: &mut dyn FnMut(String)) -> Result<Found> {
    Ok(match target {
        Target::System => Found::Filtered(Kept::All),
        Target::ProcessGroup(id) => {
            if !any_process(5 - 3, *id)? {
                bail!("no process is in process group {id}");
            }
            Found::Filtered(Kept::ProcessGroup(*id))
        }
        Target::Session(id) => {
            if !any_process(6 - 3, *id)? {
                bail!("no process is in session {id}");
            }
            Found::Filtered(Kept::Session(*id))
        }
        Target::Cgroup(path) => Found::Filtered(Kept::Cgroup(open_cgroup(path)?)),
        Target::Processes(pids) => {
            let mut there = Vec::new();
            for &pid in pids {
                match procfs::process_of_thread(pid) {
                    Ok(process) if process == pid => there.push(pid),
                    Ok(process) => bail!(
                        "{pid} is a thread of process {process}: use -t {pid} or -p {process}"
                    ),
                    Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                    Err(err) => {
                        return Err(err).with_context(|| format!("cannot look at process {pid}"));
                    }
                }
            }
            tell_missing("process", pids, &there, warn)?;
            Found::Processes(there)
        }
        Target::Threads(tids) => {
            let (mut there, mut processes) = (Vec::new(), BTreeSet::new());
            for &tid in tids {
                match procfs::process_of_thread(tid) {
                    Ok(process) => {
                        there.push(tid);
                        processes.insert(process);
                    }
                    Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                    Err(err) => {
                        return Err(err).with_context(|| format!("cannot look at thread {tid}"));
                    }
                }
            }
            tell_missing("thread", tids, &there, warn)?;
            Found::Threads(there, processes.into_iter().collect())
        }
        Target::Command(_) => Found::Command,
    })
}

/// What of a list is not there: to be told when some of it is, an error when nothing is.
fn tell_missing(
    what: &str,
    asked: &[Pid],
    there: &[Pid],
    warn: &mut dyn FnMut(String),
) -> Result<()> {
    let missing: Vec<String> = asked
        .iter()
        .filter(|pid| !there.contains(pid))
        .map(Pid::to_string)
        .collect();
    let missing = missing.join(", ");
    if there.is_empty() {
        bail!("there is no {what} {missing}");
    }
    if !missing.is_empty() {
        warn(format!(
            "there is no {what} {missing}: the others are sampled"
        ));
    }
    Ok(())
}

/// Whether a process has `id` as that word of its stat (counted after the name).
fn any_process(word: usize, id: u32) -> Result<bool> {
    let processes = procfs::list_processes().context("cannot list /proc")?;
    Ok(processes
        .into_iter()
        .any(|pid| procfs::stat_word(pid, word) == Some(u64::from(id))))
}

/// A cgroup given as a directory, or as a path from the root of the cgroup v2 hierarchy.
fn open_cgroup(path: &Path) -> Result<File> {
    let mount = cgroups::mount_point();
    let mut tried = vec![path.to_path_buf()];
    if let Some(mount) = &mount {
        tried.push(mount.join(path.strip_prefix("/").unwrap_or(path)));
    }
    let found: Option<&PathBuf> = tried.iter().find(|dir| is_cgroup2(dir));
    match (found, mount) {
        (Some(dir), _) => File::open(dir).with_context(|| format!("cannot open {}", dir.display())),
        (None, None) => bail!("cgroup v2 is not mounted, so --cgroup cannot be used here"),
        (None, Some(mount)) => bail!(
            "{} is not a cgroup of the v2 hierarchy mounted at {}",
            path.display(),
            mount.display()
        ),
    }
}

fn is_cgroup2(dir: &Path) -> bool {
    /// `CGROUP2_SUPER_MAGIC` of `include/uapi/linux/magic.h`.
    const CGROUP2: i64 = 0x6367_7270;
    dir.is_dir() && rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type == CGROUP2)
}
