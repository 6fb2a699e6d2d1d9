//! What has to be asked of files and memory maps of other processes is asked by a process aside: a file system that does
//! not answer (a dead NFS server, a stopped FUSE daemon) keeps whoever asks waiting, perhaps for ever, and nothing ends that
//! wait. Samples must not wait for it, and neither must the end of the recording: a thread that waits so would keep all of
//! its process from ending.
//!
//! ```text
//! recorder: question ──> worker: /proc, mapped files ──> answer       or, after a while, none: the worker is left to its fate
//!                                                                     and what it was asked about is not asked about again
//! ```

mod worker;

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::worker::Worker;
use super::files::SeenFile;
use super::maps::{RawMapping, SeenProcess};
use crate::event::{InodeKey, Pid, Timestamp};
use crate::format::meta;

/// So long is waited for an answer: less than a ring takes to fill at any rate.
const PATIENCE: Duration = Duration::from_millis(250);
/// So often more when the worker is not held up but has not had its turn.
const MORE_TURNS: u32 = 8;
/// Workers left to their fate at most; then nothing is asked any more.
const MOST_LEFT: usize = 8;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    /// What a process has mapped.
    Process(Pid),
    /// The file behind a mapping of a process, made at that time if that was told.
    File(Pid, RawMapping, Option<Timestamp>),
    /// Whether the file system with the perf map of a process that started then answers.
    PerfMap(Pid, Timestamp),
}

/// What a question is about: one that is not answered tells of others that will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct About {
    process: Pid,
    /// Major and minor number.
    device: Option<(u32, u32)>,
}

impl About {
    fn shares(&self, other: &About) -> bool {
        match (self.device, other.device) {
            (Some(one), Some(other)) => one == other,
            // A map that cannot be read, or a file of which no device is known.
            (None, _) | (_, None) => self.process == other.process,
        }
    }
}

/// Asks, and does not wait for ever.
#[derive(Debug, Default)]
pub struct Aside {
    worker: Option<Worker>,
    /// Of workers that did not answer: what about.
    left: Vec<(Worker, About)>,
    /// For the person.
    news: Vec<String>,
    told: Vec<About>,
}

/// There is no answer.
#[derive(Debug)]
struct Silence;

impl Aside {
    /// Starts the worker, at best before there is anything that it should not have: memory, descriptors.
    pub fn start() -> io::Result<Aside> {
        Ok(Aside {
            worker: Some(Worker::fork()?),
            ..Aside::default()
        })
    }

    /// What `process` has mapped. An error when it is gone, may not be read, or cannot be read without waiting for ever.
    pub fn process(&mut self, process: Pid) -> io::Result<SeenProcess> {
        let about = About {
            process,
            device: None,
        };
        let told: Result<SeenProcess, (Option<i32>, String)> = self
            .ask(&Question::Process(process), about, "its memory map")
            .map_err(|Silence| {
                io::Error::new(io::ErrorKind::TimedOut, "a file system does not answer")
            })?;
        told.map_err(|(number, text)| match number {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(text),
        })
    }

    /// What is in the file that `raw` of `process` maps, made at `made`; `None` when it cannot be had.
    pub fn file(
        &mut self,
        process: Pid,
        raw: &RawMapping,
        made: Option<Timestamp>,
    ) -> Option<SeenFile> {
        let device = |inode: InodeKey| (inode.major, inode.minor);
        let about = About {
            process,
            device: raw.inode.map(device),
        };
        let question = Question::File(process, raw.clone(), made);
        let name = String::from_utf8_lossy(&raw.path).into_owned();
        self.ask(&question, about, &name).ok().flatten()
    }

    /// Whether the file system answers on which the perf map of `process` is, or would be.
    pub fn answers_for_map(&mut self, process: Pid, start: Timestamp) -> bool {
        let about = About {
            process,
            device: None,
        };
        let question = Question::PerfMap(process, start);
        self.ask::<()>(&question, about, "its perf map").is_ok()
    }

    /// What has not answered since the last call, in words.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        question: &Question,
        about: About,
        what: &str,
    ) -> Result<T, Silence> {
        // Whoever has answered after all, if late: it can be asked about again.
        self.left
            .retain_mut(|(worker, _)| !(worker.has_answered() || worker.has_ended()));
        let is_known = self.left.iter().any(|(_, left)| left.shares(&about));
        if is_known || self.left.len() >= MOST_LEFT {
            return Err(Silence);
        }
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::fork().map_err(|_| Silence)?,
        };
        match worker.ask(question) {
            Ok(Some(answer)) => {
                self.worker = Some(worker);
                meta::decode_frame("answer", &answer).map_err(|_| Silence)
            }
            // It has ended: the next question has another one.
            Err(_) => Err(Silence),
            Ok(None) => {
                if !self.told.contains(&about) {
                    self.told.push(about);
                    let name: String = what.escape_debug().take(200).collect();
                    self.news.push(format!(
                        "a file system does not answer: {name} of process {} could not be read in time; what depends on it \
                         has no names",
                        about.process
                    ));
                }
                self.left.push((worker, about));
                Err(Silence)
            }
        }
    }
}

/// A message of either side: its length, then its bytes.
fn send(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    meta::encode(&mut bytes, "message", message).map_err(io::Error::other)?;
    let length = (bytes.len() as u32).saturating_sub(4);
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length.to_ne_bytes();
    }
    stream.write_all(&bytes)
}

fn receive(stream: &mut UnixStream, mut length: [u8; 4]) -> io::Result<Vec<u8>> {
    stream.read_exact(&mut length)?;
    let mut bytes = Vec::new();
    let length = u64::from(u32::from_ne_bytes(length));
    stream.take(length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether a process waits for its turn, and for nothing else.
fn is_running(process: i32) -> bool {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.iter().rposition(|b| *b == b')');
    after.is_some_and(|at| stat.get(at + 2) == Some(&b'R'))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_worker_answers_as_we_would() {
        let mut aside = Aside::start().unwrap();
        let me = Pid(std::process::id());
        let seen = aside.process(me).unwrap();
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap().as_bytes();
        assert_eq!(seen.exe.as_deref(), Some(own));
        let mapping = seen.mappings.iter().find(|m| m.path == own).unwrap();
        let file = aside.file(me, mapping, None).unwrap();
        let headers = File::open(std::env::current_exe().unwrap()).unwrap();
        let headers = crate::elf_file::read_headers(&headers).unwrap();
        assert!(!file.named_as_given);
        assert_eq!(file.headers, headers);
        assert!(!file.headers.loads.is_empty());
        assert!(
            aside
                .file(
                    Pid(50_000_000),
                    &RawMapping {
                        inode: None,
                        build_id: None,
                        ..mapping.clone()
                    },
                    None
                )
                .is_none()
        );
        let gone = aside.process(Pid(50_000_000)).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
        assert!(aside.answers_for_map(me, Timestamp(0)));
        assert!(aside.take_news().is_empty() && aside.left.is_empty());
    }

    /// One that is stopped is as one that waits for a disk.
    #[test]
    fn who_does_not_answer_is_left_and_what_it_was_about_not_asked_again() {
        let mut aside = Aside::start().unwrap();
        let me = Pid(std::process::id());
        let stopped = aside.worker.as_ref().unwrap().process();
        let signal = |signal| {
            // SAFETY: a child of ours that has not been waited for.
            unsafe { libc::kill(stopped, signal) }
        };
        assert_eq!(signal(libc::SIGSTOP), 0);
        assert!(aside.process(me).is_err());
        assert_eq!(aside.left.len(), 1);
        let news = aside.take_news();
        assert!(news[0].contains("does not answer"), "{news:?}");
        let began = std::time::Instant::now();
        assert!(aside.process(me).is_err());
        assert!(began.elapsed() < PATIENCE, "asked again");
        // Others are asked about, by another worker, which a busy machine may let answer late.
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let other = Pid(sleeper.id());
        let answered = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            let seen = aside.process(other);
            seen.is_ok_and(|seen| !seen.mappings.is_empty())
        });
        sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
        assert!(answered);
        assert_eq!(signal(libc::SIGCONT), 0);
        let answered = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            aside.process(me).is_ok()
        });
        assert!(answered && aside.left.is_empty());
    }

    #[test]
    fn a_worker_that_ends_is_replaced() {
        let mut aside = Aside::start().unwrap();
        let me = Pid(std::process::id());
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(aside.worker.as_ref().unwrap().process(), libc::SIGKILL) };
        let _ = aside.process(me);
        assert!(aside.process(me).is_ok());
    }

    #[test]
    fn what_shares_a_device_shares_its_fate() {
        let about = |process, device| About {
            process: Pid(process),
            device,
        };
        let hung = about(1, Some((0, 50)));
        assert!(hung.shares(&about(2, Some((0, 50)))));
        assert!(!hung.shares(&about(1, Some((8, 1)))));
        assert!(hung.shares(&about(1, None)) && !hung.shares(&about(2, None)));
    }
}
