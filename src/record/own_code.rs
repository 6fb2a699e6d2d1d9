//! Memory of ours that recording does without: code that was only needed to get started, and what is kept of memory that was freed.

use std::ffi::{c_int, c_void};

use rustix::mm::{Advice, madvise};

/// Asks for memory that is freed to be given back. What is large is taken from the kernel and given back alone, so that a long
/// recording does not grow by what lies between pieces of other lives; by itself the allocator would keep larger and larger ones.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes nothing but where memory is taken from later.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Bytes that are taken from the kernel alone: less would be columns of a frame, which come and go with each.
#[cfg(target_env = "gnu")]
const LARGE: c_int = 512 << 10;

/// Unmaps the pages of this program's code and constants, and those of the libraries it has. What is needed again comes back
/// from the page cache, some pages at a time: of a dozen megabytes, what checks, loads and opens is most.
pub fn give_back() {
    // SAFETY: the function takes what it is called with, and what it is told is not kept.
    unsafe { libc::dl_iterate_phdr(Some(give_back_object), std::ptr::null_mut()) };
}

/// Unmaps what one object has mapped of its file to be read and run, never to be written.
unsafe extern "C" fn give_back_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    let page = rustix::param::page_size();
    // SAFETY: as the loader tells it: so many headers, of an object that is mapped.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        };
        (info.dlpi_addr as usize, headers)
    };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let start = base + header.p_vaddr as usize;
        let end = (start + header.p_filesz as usize) / page * page;
        let start = start.next_multiple_of(page);
        if start < end {
            // SAFETY: mapped from a file and never written, not by the loader either, so its pages can always be read again.
            let _ = unsafe { madvise(start as *mut _, end - start, Advice::LinuxDontNeed) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this program's code in memory.
    fn resident() -> u64 {
        let here = resident as *const () as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            let ends = range.map(|(a, b)| (u64::from_str_radix(a, 16), u64::from_str_radix(b, 16)));
            if let Some((Ok(start), Ok(end))) = ends {
                inside = (start..end).contains(&here);
            }
            if let Some(kb) = line.strip_prefix("Rss:").filter(|_| inside) {
                return kb.trim().trim_end_matches(" kB").parse().unwrap();
            }
        }
        panic!("own code is not mapped");
    }

    #[test]
    fn code_is_given_back_and_runs_on() {
        // Other tests run meanwhile and bring theirs back.
        let fewer = (0..20).any(|_| {
            let before = resident();
            give_back();
            resident() < before
        });
        assert!(fewer);
    }
}
