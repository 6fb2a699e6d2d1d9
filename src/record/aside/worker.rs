//! The process that is asked.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

use super::{MORE_TURNS, PATIENCE, Question, append, is_running, receive, send};
use crate::record::capabilities;
use crate::record::files::see;
use crate::record::jit::look_for_map;
use crate::record::maps::read_process;

/// Bytes of questions that are under way at once: a socket takes them while nobody reads, since whoever answers may wait
/// until its answers are read.
const UNDER_WAY: usize = 32 << 10;

/// What came of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Each that was asked has its answer.
    Answered,
    /// The first one without an answer has none in time.
    Late,
    /// The worker has ended over it.
    Ended,
}

/// A worker, as the recorder sees it.
#[derive(Debug)]
pub struct Worker {
    process: i32,
    stream: UnixStream,
    /// It was not in time.
    left: bool,
}

impl Worker {
    /// A new process that has nothing of ours but what is in memory and one end of a socket.
    pub fn fork() -> io::Result<Worker> {
        let (stream, other) = UnixStream::pair()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // SAFETY: the child goes on in `work`, which never returns. It uses memory of its own, and no lock of another thread:
        // the C library keeps those of its allocator in order over a fork, and threads of ours have no others.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let _ = std::panic::catch_unwind(|| work(other));
                // SAFETY: nothing of the recorder's is to be ended or written: no destructor runs.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Worker {
                process,
                stream,
                left: false,
            }),
        }
    }

    /// Its number.
    #[cfg(test)]
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Asks as many of the first of `questions` as may be under way at once, one at least, and gives each answer to `each`, in
    /// their order.
    pub fn ask<'q>(
        &mut self,
        questions: impl Iterator<Item = &'q Question>,
        mut each: impl FnMut(&[u8]),
    ) -> Outcome {
        let (mut bytes, mut asked) = (Vec::new(), 0);
        for question in questions {
            let before = bytes.len();
            if append(&mut bytes, question).is_err() {
                return Outcome::Ended;
            }
            if asked > 0 && bytes.len() > UNDER_WAY {
                bytes.truncate(before);
                break;
            }
            asked += 1;
        }
        // It may be stopped, with the last question unread.
        if let Err(err) = self.stream.write_all(&bytes) {
            return self.without_answer(&err);
        }
        for _ in 0..asked {
            match self.answer() {
                Ok(answer) => each(&answer),
                Err(err) => return self.without_answer(&err),
            }
        }
        Outcome::Answered
    }

    /// The next answer. An error when there is none in time, or it has ended.
    fn answer(&mut self) -> io::Result<Vec<u8>> {
        let mut first = [0; 1];
        let mut turns = 0;
        loop {
            match self.peek(&mut first) {
                Err(err) if is_timeout(&err) && turns < MORE_TURNS && is_running(self.process) => {
                    turns += 1;
                }
                Err(err) => return Err(err),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => break,
            }
        }
        receive(&mut self.stream, [0; 4])
    }

    fn without_answer(&mut self, err: &io::Error) -> Outcome {
        self.left = is_timeout(err);
        match self.left {
            true => Outcome::Late,
            false => Outcome::Ended,
        }
    }

    fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            // SAFETY: as many bytes as `into` has.
            let got = unsafe {
                libc::recv(
                    self.stream.as_raw_fd(),
                    into.as_mut_ptr().cast(),
                    into.len(),
                    libc::MSG_PEEK,
                )
            };
            match usize::try_from(got) {
                Ok(got) => return Ok(got),
                Err(_) => {
                    let err = io::Error::last_os_error();
                    if err.kind() != ErrorKind::Interrupted {
                        return Err(err);
                    }
                }
            }
        }
    }

    /// Whether one that was left has an answer after all. It is not taken.
    pub fn has_answered(&self) -> bool {
        let mut byte = 0u8;
        // SAFETY: one byte of our own.
        let got = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags)
        };
        got >= 0
    }

    /// Whether it is no more.
    pub fn has_ended(&self) -> bool {
        // SAFETY: only asks about a child of ours, into nothing.
        unsafe {
            let mut info = std::mem::zeroed::<libc::siginfo_t>();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let id = self.process.cast_unsigned();
            libc::waitid(libc::P_PID, id, &raw mut info, flags) != 0 || info.si_pid() != 0
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let flags = if self.left {
            // SAFETY: a child of ours that has not been waited for. Some waits end with this, others end when they end.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            libc::WNOHANG
        } else {
            // It ends when it finds that nobody is there to ask.
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
            0
        };
        // SAFETY: as above; what it ended with is of no interest.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), flags) };
    }
}

fn is_timeout(err: &io::Error) -> bool {
    matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Answers until nobody asks any more.
fn work(stream: UnixStream) {
    let Some(mut stream) = leave_recorder(stream) else {
        return;
    };
    capabilities::keep_needed();
    while let Ok(question) = receive(&mut stream, [0; 4]) {
        let Ok(question) = crate::format::meta::decode_frame("question", &question) else {
            return;
        };
        let answered = match question {
            Question::Process(process) => {
                let seen = read_process(process);
                let told = seen.map_err(|err| (err.raw_os_error(), err.to_string()));
                send(&mut stream, &told)
            }
            Question::File(process, raw, made) => send(&mut stream, &see(process, &raw, made)),
            Question::PerfMap(process, start) => {
                look_for_map(process, start);
                send(&mut stream, &())
            }
        };
        if answered.is_err() {
            return;
        }
    }
}

/// Lets go of the recorder's descriptors, or who reads its output would wait for the end of this process; and of its
/// terminal, so that Ctrl-C does not come here.
fn leave_recorder(stream: UnixStream) -> Option<UnixStream> {
    const SOCKET: i32 = 3;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: handlers of the recorder's would write to what is closed here.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = rustix::process::setsid();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .ok()?
        .into_raw_fd();
    let socket = stream.into_raw_fd();
    // SAFETY: descriptors of this process, which nothing else uses from here on.
    unsafe {
        // First to where neither is overwritten.
        let null = libc::fcntl(null, libc::F_DUPFD_CLOEXEC, 10);
        let socket = libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, 10);
        if null < 0 || socket < 0 {
            return None;
        }
        for standard in 0..SOCKET {
            libc::dup2(null, standard);
        }
        if libc::dup2(socket, SOCKET) < 0 {
            return None;
        }
        let from = SOCKET.cast_unsigned() + 1;
        if libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) != 0 {
            // Before Linux 5.9.
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(256, 1 << 16) as i32;
            for fd in SOCKET + 1..most {
                libc::close(fd);
            }
        }
        libc::prctl(libc::PR_SET_NAME, c"profiler-files".as_ptr());
        Some(UnixStream::from_raw_fd(SOCKET))
    }
}
