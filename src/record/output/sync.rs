//! Bringing what is written to the disk, beside the recording: a slow disk keeps a thread waiting that has nothing else to do.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The thread only calls the kernel.
const STACK: usize = 64 << 10;

/// Asks for `fdatasync` in time, one at a time.
#[derive(Debug)]
pub(super) struct Sync {
    every: Duration,
    next: Instant,
    /// Bytes of the file when it was asked for the last time.
    asked: u64,
    /// Since when it is under way.
    busy: Option<Instant>,
    helper: Option<Helper>,
}

#[derive(Debug)]
struct Helper {
    ask: Sender<()>,
    done: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

impl Sync {
    /// Each `every`, from now on.
    pub fn new(every: Duration) -> Sync {
        Sync {
            every,
            next: Instant::now() + every,
            asked: 0,
            busy: None,
            helper: None,
        }
    }

    /// Asks, when it is time and something was written since. An error is that of an earlier request: what was written before it
    /// may be lost.
    pub fn tick(&mut self, file: &File, path: Option<&Path>, bytes: u64) -> io::Result<()> {
        self.collect()?;
        let now = Instant::now();
        if self.busy.is_some() || now < self.next || bytes == self.asked {
            return Ok(());
        }
        let helper = match &mut self.helper {
            Some(helper) => helper,
            // Only now: a thread has the capabilities of the one that starts it, which has given some up meanwhile.
            none => none.insert(Helper::start(
                file.try_clone()?,
                path.map(Path::to_path_buf),
            )?),
        };
        if helper.ask.send(()).is_ok() {
            self.busy = Some(now);
            self.asked = bytes;
            self.next = now + self.every;
        }
        Ok(())
    }

    fn collect(&mut self) -> io::Result<()> {
        let Some(helper) = &self.helper else {
            return Ok(());
        };
        match helper.done.try_recv() {
            Ok(result) => {
                self.busy = None;
                result
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(()),
        }
    }

    /// For how long the disk has been at it, when that is more than the interval.
    pub fn behind(&self) -> Option<Duration> {
        let since = self.busy?.elapsed();
        (since > self.every).then_some(since)
    }

    /// All is written: waits until it is on the disk.
    pub fn finish(mut self, file: &File) -> io::Result<()> {
        if let Some(Helper { ask, done, thread }) = self.helper.take() {
            drop(ask);
            // Its last result is there when it has ended.
            let _ = thread.join();
            if let Ok(result) = done.try_recv() {
                result?;
            }
        }
        file.sync_data()
    }
}

impl Helper {
    fn start(file: File, path: Option<PathBuf>) -> io::Result<Helper> {
        let (ask, asked) = mpsc::channel::<()>();
        let (tell, done) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("sync".into())
            .stack_size(STACK)
            .spawn(move || {
                let mut named = path;
                for () in asked {
                    let result = file.sync_data();
                    // The name of a new file is on the disk only with its directory.
                    if let Some(path) = named.take() {
                        sync_directory(&path);
                    }
                    if tell.send(result).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Helper { ask, done, thread })
    }
}

/// Where a directory cannot be opened or brought to the disk, its file system has to see to it.
fn sync_directory(path: &Path) {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Ok(dir) = File::open(parent.unwrap_or(Path::new("."))) {
        let _ = dir.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for is done once per interval, and only when there is something new.
    #[test]
    fn it_is_asked_for_in_time() {
        let file = tempfile::tempfile().expect("a file");
        let mut sync = Sync::new(Duration::ZERO);
        sync.tick(&file, None, 0).expect("nothing to do");
        assert!(sync.helper.is_none() && sync.busy.is_none());
        sync.tick(&file, None, 10).expect("asked");
        assert!(sync.busy.is_some() && sync.behind().is_some());
        while sync.busy.is_some() {
            sync.collect().expect("done");
            thread::sleep(Duration::from_millis(1));
        }
        sync.tick(&file, None, 10).expect("nothing new");
        assert!(sync.busy.is_none());
        sync.finish(&file).expect("synced");

        let mut late = Sync::new(Duration::from_secs(3600));
        late.tick(&file, None, 10).expect("not yet");
        assert!(late.busy.is_none());
        // What cannot be synced is told: at the next write, or at the end.
        let (read, _write) = io::pipe().expect("a pipe");
        let pipe = File::from(std::os::fd::OwnedFd::from(read));
        let mut failing = Sync::new(Duration::ZERO);
        failing.tick(&pipe, None, 10).expect("asked");
        let failed = (0..2000).find_map(|_| {
            thread::sleep(Duration::from_millis(1));
            failing.collect().err()
        });
        assert!(failed.is_some());
    }
}
