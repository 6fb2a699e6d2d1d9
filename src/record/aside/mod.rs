//! What has to be asked of files and memory maps of other processes is asked by a process aside: a file system that does
//! not answer (a dead NFS server, a stopped FUSE daemon) keeps whoever asks waiting, perhaps for ever, and nothing ends that
//! wait. Samples must not wait for it, and neither must the end of the recording: a thread that waits so would keep all of
//! its process from ending.
//!
//! ```text
//! recorder: questions ──> worker: /proc, mapped files ──> answers      or, after a while, none: the worker is left to its fate
//!                                                                     and what it was asked about is not asked about again
//! ```
//!
//! Several questions can be under way: where all CPUs are busy, each wait for one answer costs its time.

mod worker;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::worker::{Outcome, Worker};
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

/// A question with what has to be known of it when there is no answer.
struct Asked {
    question: Question,
    about: About,
    /// In words.
    what: String,
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

/// One for all who have questions.
pub type SharedAside = Rc<RefCell<Aside>>;

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
        let mut seen = self.processes(&[process]);
        seen.pop().unwrap_or_else(|| Err(silent()))
    }

    /// As [`Aside::process`] of each of `processes`, in their order.
    pub fn processes(&mut self, processes: &[Pid]) -> Vec<io::Result<SeenProcess>> {
        let asked: Vec<Asked> = processes
            .iter()
            .map(|&process| Asked {
                question: Question::Process(process),
                about: About {
                    process,
                    device: None,
                },
                what: "its memory map".into(),
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        type Told = Result<SeenProcess, (Option<i32>, String)>;
        self.ask(&asked, |told: Result<Told, Silence>| {
            let told = told.map_err(|Silence| silent());
            all.push(told.and_then(|told| {
                told.map_err(|(number, text)| match number {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::other(text),
                })
            }));
        });
        all
    }

    /// What is in the file that `raw` of `process` maps, made at `made`; `None` when it cannot be had.
    pub fn file(
        &mut self,
        process: Pid,
        raw: &RawMapping,
        made: Option<Timestamp>,
    ) -> Option<SeenFile> {
        self.files(&[(process, raw)], made).pop().flatten()
    }

    /// As [`Aside::file`] of each of `mapped`, in their order.
    pub fn files(
        &mut self,
        mapped: &[(Pid, &RawMapping)],
        made: Option<Timestamp>,
    ) -> Vec<Option<SeenFile>> {
        let device = |inode: InodeKey| (inode.major, inode.minor);
        let asked: Vec<Asked> = mapped
            .iter()
            .map(|&(process, raw)| Asked {
                question: Question::File(process, raw.clone(), made),
                about: About {
                    process,
                    device: raw.inode.map(device),
                },
                what: String::from_utf8_lossy(&raw.path).into_owned(),
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        self.ask(&asked, |seen: Result<Option<SeenFile>, Silence>| {
            all.push(seen.ok().flatten());
        });
        all
    }

    /// Whether the file system answers on which the perf map of `process` is, or would be.
    pub fn answers_for_map(&mut self, process: Pid, start: Timestamp) -> bool {
        let asked = Asked {
            question: Question::PerfMap(process, start),
            about: About {
                process,
                device: None,
            },
            what: "its perf map".into(),
        };
        let mut answers = false;
        self.ask(&[asked], |told: Result<(), Silence>| {
            answers = told.is_ok();
        });
        answers
    }

    /// What has not answered since the last call, in words.
    pub fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Gives the answer to each of `asked`, in their order, to `each`.
    fn ask<T: DeserializeOwned>(
        &mut self,
        asked: &[Asked],
        mut each: impl FnMut(Result<T, Silence>),
    ) {
        let mut rest = asked;
        while !rest.is_empty() {
            // Whoever has answered after all, if late: it can be asked about again.
            self.left
                .retain_mut(|(worker, _)| !(worker.has_answered() || worker.has_ended()));
            let is_known =
                |asked: &&Asked| self.left.iter().any(|(_, left)| left.shares(&asked.about));
            let askable = rest.iter().take_while(|asked| !is_known(asked)).count();
            let mut worker = match askable > 0 && self.left.len() < MOST_LEFT {
                true => self.worker.take().or_else(|| Worker::fork().ok()),
                false => None,
            };
            let mut answered = 0;
            let outcome = worker.as_mut().map_or(Outcome::Ended, |worker| {
                let questions = rest.iter().take(askable).map(|asked| &asked.question);
                worker.ask(questions, |answer| {
                    answered += 1;
                    each(meta::decode_frame("answer", answer).map_err(|_| Silence));
                })
            });
            rest = rest.get(answered..).unwrap_or_default();
            if outcome == Outcome::Answered {
                self.worker = worker;
                continue;
            }
            let Some((silent, others)) = rest.split_first() else {
                break;
            };
            each(Err(Silence));
            rest = others;
            // One that has ended is replaced.
            if let Some(worker) = worker.filter(|_| outcome == Outcome::Late) {
                self.tell(silent);
                self.left.push((worker, silent.about));
            }
        }
    }

    /// Tells of a question that is not answered.
    fn tell(&mut self, asked: &Asked) {
        if self.told.contains(&asked.about) {
            return;
        }
        self.told.push(asked.about);
        let name: String = asked.what.escape_debug().take(200).collect();
        self.news.push(format!(
            "a file system does not answer: {name} of process {} could not be read in time; what depends on it has no names",
            asked.about.process
        ));
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a file system does not answer")
}

/// A message of either side: its length, then its bytes.
fn send(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = Vec::new();
    append(&mut bytes, message)?;
    stream.write_all(&bytes)
}

/// Adds a message to others.
fn append(bytes: &mut Vec<u8>, message: &impl Serialize) -> io::Result<()> {
    let begin = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    meta::encode(bytes, "message", message).map_err(io::Error::other)?;
    let length = (bytes.len() - begin) as u32 - 4;
    let head = bytes.get_mut(begin..).and_then(|own| own.first_chunk_mut());
    if let Some(head) = head {
        *head = length.to_ne_bytes();
    }
    Ok(())
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

    /// More than is under way at once, and more answers than a socket takes.
    #[test]
    fn many_questions_are_answered_in_their_order() {
        let mut aside = Aside::start().unwrap();
        let me = Pid(std::process::id());
        let gone = Pid(50_000_000);
        let asked: Vec<Pid> = (0..5000).map(|i| [me, gone, me][i % 3]).collect();
        let seen = aside.processes(&asked);
        assert_eq!(seen.len(), asked.len());
        for (process, seen) in asked.iter().zip(&seen) {
            assert_eq!(seen.is_ok(), *process == me);
        }
        let mapped = &aside.process(me).unwrap().mappings;
        let own = mapped.iter().find(|m| m.path.starts_with(b"/")).unwrap();
        let asked: Vec<_> = (0..500).map(|i| ([me, gone][i % 2], own)).collect();
        let nowhere = RawMapping {
            inode: None,
            build_id: None,
            ..own.clone()
        };
        let asked: Vec<_> = asked.into_iter().chain([(gone, &nowhere)]).collect();
        let seen = aside.files(&asked, None);
        // Of one that is gone it is found by its path.
        let found: Vec<bool> = seen.iter().map(Option::is_some).collect();
        assert_eq!(found, [vec![true; 500], vec![false]].concat());
        assert!(aside.take_news().is_empty());
    }

    /// A stopped worker answers none of them, and each of the others is asked of another one.
    #[test]
    fn of_many_questions_only_the_one_without_an_answer_has_none() {
        let mut aside = Aside::start().unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let (me, other) = (Pid(std::process::id()), Pid(sleeper.id()));
        let stopped = aside.worker.as_ref().unwrap().process();
        // SAFETY: a child of ours that has not been waited for.
        assert_eq!(unsafe { libc::kill(stopped, libc::SIGSTOP) }, 0);
        let seen = aside.processes(&[me, other, me, other]);
        sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
        let seen: Vec<bool> = seen.iter().map(Result::is_ok).collect();
        assert_eq!(seen, [false, true, false, true]);
        assert_eq!(aside.left.len(), 1);
        assert_eq!(aside.take_news().len(), 1);
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
