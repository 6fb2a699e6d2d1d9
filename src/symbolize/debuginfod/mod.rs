//! Files by their build ID from debuginfod servers, kept in debuginfod's cache so that they are there offline.
//!
//! Nothing here is used unless it was asked for: a report connects to nobody by itself. The cache is that of other
//! debuginfod clients: `BUILDID/debuginfo` and `BUILDID/executable` below [`cache_dir`].

#[cfg(feature = "debuginfod")]
mod http;

use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::search::{Fetch as FetchFiles, FileKind};
use crate::elf_file::{open_regular, read_build_id};
use crate::event::BuildId;

/// Seconds a server may do nothing when DEBUGINFOD_TIMEOUT does not say so.
const TIMEOUT: u64 = 30;
/// Bytes a file may have when DEBUGINFOD_MAXSIZE does not say so.
const MAX_SIZE: u64 = 4 << 30;

/// Which servers to ask, and what that may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    urls: Vec<String>,
    cache: PathBuf,
    limits: Limits,
}

/// The servers, and what they said.
pub struct Debuginfod {
    servers: Vec<Server>,
    cache: PathBuf,
    limits: Limits,
    /// Nobody has these: asked once in a run.
    absent: HashSet<(BuildId, FileKind)>,
    fetch: Box<Fetch>,
}

/// Asks one server for the file at a URL, into a file. A function, so that the rest can be tested without a network.
type Fetch = dyn FnMut(&str, &mut File, &Limits) -> Result<bool, Failure> + Send;

struct Server {
    url: String,
    /// It did not answer: not asked again.
    dead: bool,
}

/// FileKind a download may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    /// Time in which something must happen.
    timeout: Duration,
    /// Time for a whole file.
    total: Option<Duration>,
    /// Bytes of a file.
    size: u64,
}

/// Why a server gave no file, other than that it has none.
#[derive(Debug)]
enum Failure {
    /// The server is not to be asked again.
    Server(String),
    /// This file is not to be had, others may be.
    File(String),
}

impl std::fmt::Debug for Debuginfod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let urls: Vec<&str> = self.servers.iter().map(|s| s.url.as_str()).collect();
        write!(f, "Debuginfod({urls:?}, {})", self.cache.display())
    }
}

impl Settings {
    /// The servers of DEBUGINFOD_URLS, with the limits of the other variables of debuginfod.
    ///
    /// # Errors
    /// A message when there is no server, or nowhere to keep files.
    pub fn from_env() -> Result<Settings, String> {
        if cfg!(not(feature = "debuginfod")) {
            return Err("this profiler was built without it (cargo feature debuginfod)".to_owned());
        }
        let urls = env::var("DEBUGINFOD_URLS").unwrap_or_default();
        let cache = cache_dir().ok_or("set DEBUGINFOD_CACHE_PATH or HOME to keep files")?;
        let number = |name| {
            let value = env::var(name).ok()?;
            let value: u64 = value.trim().parse().ok()?;
            (value > 0).then_some(value)
        };
        let limits = Limits {
            timeout: Duration::from_secs(number("DEBUGINFOD_TIMEOUT").unwrap_or(TIMEOUT)),
            total: number("DEBUGINFOD_MAXTIME").map(Duration::from_secs),
            size: number("DEBUGINFOD_MAXSIZE")
                .unwrap_or(MAX_SIZE)
                .min(MAX_SIZE),
        };
        Settings::new(&urls, cache, limits)
    }

    fn new(urls: &str, cache: PathBuf, limits: Limits) -> Result<Settings, String> {
        // `ima:...` between URLs is a policy of elfutils about signatures.
        let words = urls.split_whitespace().filter(|w| !w.starts_with("ima:"));
        let mut urls = Vec::new();
        for url in words {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(format!(
                    "{url} in DEBUGINFOD_URLS is not an http:// or https:// URL"
                ));
            }
            urls.push(url.trim_end_matches('/').to_owned());
        }
        if urls.is_empty() {
            return Err("set DEBUGINFOD_URLS to the servers to ask".to_owned());
        }
        Ok(Settings {
            urls,
            cache,
            limits,
        })
    }
}

impl Debuginfod {
    /// Nobody is asked yet.
    pub fn new(settings: Settings) -> Debuginfod {
        #[cfg(feature = "debuginfod")]
        let fetch = http::fetch;
        #[cfg(not(feature = "debuginfod"))]
        let fetch = |_: &str, _: &mut File, _: &Limits| {
            let message = "this profiler was built without downloads";
            Err(Failure::Server(message.to_owned()))
        };
        Self::with(settings, Box::new(fetch))
    }

    fn with(settings: Settings, fetch: Box<Fetch>) -> Debuginfod {
        let servers = settings.urls.into_iter();
        Debuginfod {
            servers: servers.map(|url| Server { url, dead: false }).collect(),
            cache: settings.cache,
            limits: settings.limits,
            absent: HashSet::new(),
            fetch,
        }
    }
}

impl FetchFiles for Debuginfod {
    /// The file, from the cache or from the first server that has it.
    fn fetch(
        &mut self,
        id: &BuildId,
        what: FileKind,
        warn: &mut dyn FnMut(String),
    ) -> Option<PathBuf> {
        if let Some(path) = cached_below(&self.cache, id, what) {
            return Some(path);
        }
        if self.absent.contains(&(id.clone(), what)) {
            return None;
        }
        for server in self.servers.iter_mut().filter(|s| !s.dead) {
            let url = format!("{}/buildid/{id}/{}", server.url, what.debuginfod_name());
            match download(&mut self.fetch, &url, &self.limits, &self.cache, id, what) {
                Ok(Some(path)) => return Some(path),
                Ok(None) => {}
                Err(Failure::File(message)) => warn(format!("{url}: {message}")),
                Err(Failure::Server(message)) => {
                    warn(format!("{}: {message}; not asked again", server.url));
                    server.dead = true;
                }
            }
        }
        self.absent.insert((id.clone(), what));
        None
    }
}

/// Where debuginfod clients keep files; `None` without a home directory.
pub fn cache_dir() -> Option<PathBuf> {
    let path = |name| {
        let value = env::var_os(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(value))
    };
    if let Some(dir) = path("DEBUGINFOD_CACHE_PATH") {
        return Some(dir);
    }
    let home = path("HOME");
    let old = home
        .as_ref()
        .map(|home| home.join(".debuginfod_client_cache"));
    if let Some(old) = old.filter(|dir| dir.is_dir()) {
        return Some(old);
    }
    let cache = path("XDG_CACHE_HOME").or_else(|| home.map(|home| home.join(".cache")))?;
    Some(cache.join("debuginfod_client"))
}

/// A file of the cache, if it is there and has that build ID.
fn cached_below(cache: &Path, id: &BuildId, what: FileKind) -> Option<PathBuf> {
    let path = cache.join(id.to_string()).join(what.debuginfod_name());
    let file = open_regular(&path).ok()?;
    matches!(read_build_id(&file), Ok(Some(found)) if found == *id).then_some(path)
}

/// Downloads into the cache. The file has a name there only when it is whole and the right one; `None`: the server does
/// not have it.
fn download(
    fetch: &mut Fetch,
    url: &str,
    limits: &Limits,
    cache: &Path,
    id: &BuildId,
    what: FileKind,
) -> Result<Option<PathBuf>, Failure> {
    let dir = cache.join(id.to_string());
    let kept =
        |err: io::Error| Failure::File(format!("cannot be kept in {}: {err}", dir.display()));
    fs::create_dir_all(&dir).map_err(kept)?;
    // Without a name: whatever ends this program takes it away.
    let mut file = tempfile::tempfile_in(&dir).map_err(kept)?;
    let found = fetch(url, &mut file, limits)?;
    if !found {
        // The directory stays only with something in it.
        let _ = fs::remove_dir(&dir);
        return Ok(None);
    }
    match read_build_id(&file) {
        Ok(Some(found)) if found == *id => {}
        Ok(Some(found)) => {
            let message = format!("not used: it has build ID {found}");
            return Err(Failure::File(message));
        }
        _ => return Err(Failure::File("not used: it has no build ID".to_owned())),
    }
    let path = dir.join(what.debuginfod_name());
    keep(&file, &dir, &path).map_err(kept)?;
    Ok(Some(path))
}

/// Gives a file without a name its name, in the place of what has it.
fn keep(file: &File, dir: &Path, path: &Path) -> io::Result<()> {
    let temporary = tempfile::Builder::new()
        .prefix(".download")
        .make_in(dir, |name| {
            let open = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(
                rustix::fs::CWD,
                open,
                rustix::fs::CWD,
                name,
                rustix::fs::AtFlags::SYMLINK_FOLLOW,
            )?;
            Ok(())
        });
    match temporary {
        Ok(temporary) => temporary.persist(path).map(drop).map_err(|err| err.error),
        // A file system that makes no such links.
        Err(_) => {
            let mut copy = tempfile::NamedTempFile::new_in(dir)?;
            let mut file = file.try_clone()?;
            io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
            io::copy(&mut file, &mut copy)?;
            copy.persist(path).map(drop).map_err(|err| err.error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    const LIMITS: Limits = Limits {
        timeout: Duration::from_secs(1),
        total: None,
        size: 1 << 20,
    };

    /// A build ID and the smallest ELF file with it: this test program itself.
    fn program() -> (BuildId, Vec<u8>) {
        let file = File::open("/proc/self/exe").unwrap();
        let id = read_build_id(&file)
            .unwrap()
            .expect("linked with --build-id");
        (id, fs::read("/proc/self/exe").unwrap())
    }

    type Asked = Arc<Mutex<Vec<String>>>;

    fn servers(
        dir: &Path,
        answer: impl Fn(&str, &mut File) -> Result<bool, Failure> + Send + 'static,
    ) -> (Debuginfod, Asked) {
        let asked = Asked::default();
        let list = Arc::clone(&asked);
        let fetch = Box::new(move |url: &str, file: &mut File, _: &Limits| {
            list.lock().unwrap().push(url.to_owned());
            answer(url, file)
        });
        let urls = "http://a/ ima:enforcing https://b";
        let settings = Settings::new(urls, dir.to_path_buf(), LIMITS).unwrap();
        (Debuginfod::with(settings, fetch), asked)
    }

    #[test]
    fn the_first_server_that_has_it_fills_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let (id, bytes) = program();
        let (mut net, asked) = servers(dir.path(), move |url, file| {
            if url.starts_with("http://a/") {
                return Ok(false);
            }
            file.write_all(&bytes).unwrap();
            Ok(true)
        });
        let mut warnings = Vec::new();
        let mut warn = |message| warnings.push(message);
        let path = net.fetch(&id, FileKind::Debuginfo, &mut warn).unwrap();
        assert_eq!(path, dir.path().join(format!("{id}/debuginfo")));
        let again = net.fetch(&id, FileKind::Debuginfo, &mut warn);
        assert_eq!(again, Some(path.clone()));
        assert_eq!(
            *asked.lock().unwrap(),
            [
                format!("http://a/buildid/{id}/debuginfo"),
                format!("https://b/buildid/{id}/debuginfo")
            ]
        );
        assert_eq!(warnings, [""; 0]);
        // Nothing else is left there.
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn what_is_not_there_is_asked_for_once_and_a_dead_server_too() {
        let dir = tempfile::tempdir().unwrap();
        let (mut net, asked) = servers(dir.path(), |url, _| {
            if url.starts_with("http://a/") {
                return Err(Failure::Server("no answer".to_owned()));
            }
            Ok(false)
        });
        let mut warnings = Vec::new();
        let mut warn = |message| warnings.push(message);
        let (one, two) = (BuildId::new(&[1, 2]).unwrap(), BuildId::new(&[3]).unwrap());
        for id in [&one, &one, &two] {
            assert_eq!(net.fetch(id, FileKind::Executable, &mut warn), None);
        }
        assert_eq!(
            *asked.lock().unwrap(),
            [
                "http://a/buildid/0102/executable",
                "https://b/buildid/0102/executable",
                "https://b/buildid/03/executable"
            ]
        );
        assert_eq!(warnings, ["http://a: no answer; not asked again"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_another_build_id_is_neither_used_nor_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (_, bytes) = program();
        let (mut net, _) = servers(dir.path(), move |_, file| {
            file.write_all(&bytes).unwrap();
            Ok(true)
        });
        let other = BuildId::new(&[9; 20]).unwrap();
        let mut warnings = Vec::new();
        let mut warn = |message| warnings.push(message);
        assert_eq!(net.fetch(&other, FileKind::Executable, &mut warn), None);
        assert!(
            warnings
                .iter()
                .all(|w| w.contains("not used: it has build ID"))
        );
        assert_eq!(warnings.len(), 2);
        let kept = dir.path().join(other.to_string()).join("executable");
        assert!(!kept.exists());
    }

    #[test]
    fn servers_are_needed_and_only_of_the_web() {
        let new = |urls: &str| Settings::new(urls, "/nowhere".into(), LIMITS);
        let err = new(" ").unwrap_err();
        assert_eq!(err, "set DEBUGINFOD_URLS to the servers to ask");
        let err = new("http://a file:///etc").unwrap_err();
        assert!(
            err.starts_with("file:///etc in DEBUGINFOD_URLS is not"),
            "{err}"
        );
    }
}
