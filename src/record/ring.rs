//! A BPF ring buffer, read (`kernel/bpf/ringbuf.c`).
//!
//! The kernel offers the data twice in a row, so that no record is cut by the end. Here it is mapped once, which halves
//! what it takes of our memory, and a record that is cut is copied. Room is given back in pieces: doing it for each record
//! would take the cache line from the CPU that writes the next.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::event::epoll;
use rustix::mm::ProtFlags;

use super::shared::Shared;
use crate::capture::writer::TOGETHER;
use crate::prefetch::prefetch_at;

/// In a record's length: being written.
const BUSY: u32 = 1 << 31;
/// In a record's length: to be passed over.
const DISCARDED: u32 = 1 << 30;
/// Before each record: u32 length, u32 the kernel's own.
const HEAD: u64 = 8;
/// Records are asked for from memory so many bytes before they are read: another CPU has just written them, and where one
/// begins is only known from the one before it.
const AHEAD: u64 = 4 << 10;
/// No more bytes of records are handed over together: they are still in the nearest cache then when they are looked at.
const AT_ONCE: u64 = 24 << 10;
/// Of a cache.
const LINE: u64 = 64;

/// Rings that are waited for together.
pub struct Rings {
    epoll: OwnedFd,
    rings: Vec<Ring>,
}

struct Ring {
    consumer: Shared,
    /// The producer's page, then the data.
    producer: Shared,
    page: usize,
    /// Bytes of data, a power of two.
    size: u64,
    /// A record that was cut, in words so that it is aligned as in the ring.
    whole: Vec<u64>,
}

impl Rings {
    /// None yet.
    pub fn new() -> Result<Rings> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot wait for rings")?;
        let rings = Vec::new();
        Ok(Rings { epoll, rings })
    }

    /// Adds a ring of `size` bytes of data.
    pub fn add(&mut self, map: BorrowedFd<'_>, size: u32) -> Result<()> {
        let ring = Ring::map(map, size)?;
        // Told once for each wake-up, not for as long as there is data, which is always.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, map, epoll::EventData::new_u64(0), flags)
            .context("cannot wait for a ring")?;
        self.rings.push(ring);
        Ok(())
    }

    /// Readable once the kernel has woken us, until the next [`Rings::consume`].
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Gives all records there are to `take`, ring after ring, at most [`TOGETHER`] at once.
    pub fn consume(&mut self, mut take: impl FnMut(&[&[u8]])) {
        let mut woken = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let at_once = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Only to have been told; all are looked at whoever woke us.
        let _ = epoll::wait(&self.epoll, &mut woken[..], Some(&at_once));
        for ring in &mut self.rings {
            ring.consume(&mut take);
        }
    }
}

impl Ring {
    fn map(map: BorrowedFd<'_>, size: u32) -> Result<Ring> {
        let page = rustix::param::page_size();
        let (read, write) = (ProtFlags::READ, ProtFlags::WRITE);
        let length = page + size as usize;
        Ok(Ring {
            consumer: Shared::new(map, 0, page, read | write).context("cannot map a ring")?,
            producer: Shared::new(map, page as u64, length, read)
                .context("cannot map a ring's data")?,
            page,
            size: u64::from(size),
            whole: Vec::new(),
        })
    }

    fn consume(&mut self, take: &mut impl FnMut(&[&[u8]])) {
        let give_back = self.size / 8;
        // SAFETY: both positions are at the beginning of their pages, shared with the kernel, aligned, and mapped as
        // long as `self`.
        let (consumed, produced) = unsafe {
            (
                self.consumer.start().cast::<AtomicU64>().as_ref(),
                self.producer.start().cast::<AtomicU64>().as_ref(),
            )
        };
        let mut at = consumed.load(Ordering::Relaxed);
        let mut returned = at;
        let mut asked = at;
        let mut end = produced.load(Ordering::Acquire);
        loop {
            let begin = at;
            let mut together: [&[u8]; TOGETHER] = [&[]; TOGETHER];
            let mut count = 0;
            let mut cut = None;
            while cut.is_none() && at - returned < give_back && at - begin < AT_ONCE {
                if at >= end {
                    end = produced.load(Ordering::Acquire);
                }
                let Some(place) = together.get_mut(count).filter(|_| at < end) else {
                    break;
                };
                let Some(length) = self.length(at) else {
                    break;
                };
                let bytes = u64::from(length & !DISCARDED);
                asked = self.ask(asked, end.min(at + bytes + AHEAD));
                if length & DISCARDED == 0 {
                    match self.in_place(at + HEAD, bytes as usize) {
                        Some(record) => {
                            *place = record;
                            count += 1;
                        }
                        None => cut = Some((at + HEAD, bytes as usize)),
                    }
                }
                at += (HEAD + bytes).next_multiple_of(8);
            }
            if at == begin {
                break;
            }
            if count > 0 {
                take(together.get(..count).unwrap_or_default());
            }
            if let Some((position, length)) = cut {
                take(&[self.made_whole(position, length)]);
            }
            if at - returned >= give_back {
                consumed.store(at, Ordering::Release);
                returned = at;
            }
        }
        consumed.store(at, Ordering::Release);
    }

    /// Asks for the data between two positions; up to where it has been asked for then.
    fn ask(&self, from: u64, to: u64) -> u64 {
        let mut at = from;
        while at < to {
            let offset = (at & (self.size - 1)) as usize;
            prefetch_at(
                self.producer
                    .start()
                    .as_ptr()
                    .wrapping_add(self.page + offset),
            );
            at += LINE;
        }
        at
    }

    /// The length of the record at this position, `None` while it is being written or when it is none.
    fn length(&self, position: u64) -> Option<u32> {
        let offset = (position & (self.size - 1)) as usize;
        // SAFETY: positions are multiples of eight, as is the ring's size, so this is aligned and within the data.
        let length = unsafe {
            let head = self.producer.start().add(self.page + offset);
            head.cast::<AtomicU32>().as_ref().load(Ordering::Acquire)
        };
        let valid = length & BUSY == 0 && u64::from(length & !DISCARDED) <= self.size - HEAD;
        valid.then_some(length)
    }

    /// The bytes of a record, not more than the ring has; the kernel does not touch them before they are given back. `None`
    /// when the end of the data cuts it.
    fn in_place(&self, position: u64, length: usize) -> Option<&[u8]> {
        let offset = (position & (self.size - 1)) as usize;
        if length > self.size as usize - offset {
            return None;
        }
        // SAFETY: within the data, which is mapped as long as `self` and initialized by the kernel.
        Some(unsafe {
            let data = self.producer.start().as_ptr().add(self.page);
            std::slice::from_raw_parts(data.add(offset), length)
        })
    }

    /// A copy of a record that the end of the data cuts.
    fn made_whole(&mut self, position: u64, length: usize) -> &[u8] {
        let offset = (position & (self.size - 1)) as usize;
        let first = length.min(self.size as usize - offset);
        // SAFETY: within the data, which is mapped as long as `self` and initialized by the kernel.
        let (first, second) = unsafe {
            let data = self.producer.start().as_ptr().add(self.page);
            (
                std::slice::from_raw_parts(data.add(offset), first),
                std::slice::from_raw_parts(data, length - first),
            )
        };
        self.whole.clear();
        self.whole.resize(length.div_ceil(8), 0);
        // SAFETY: a u64 is eight bytes, all of them set, and `length` is not more than there are.
        let whole =
            unsafe { std::slice::from_raw_parts_mut(self.whole.as_mut_ptr().cast::<u8>(), length) };
        let (a, b) = whole.split_at_mut(first.len());
        a.copy_from_slice(first);
        b.copy_from_slice(second);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = 4096;

    /// A file laid out as the kernel's ring.
    struct Kernel {
        file: File,
        page: u64,
        produced: u64,
    }

    impl Kernel {
        fn new() -> (Kernel, Ring) {
            let fd = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
            let page = rustix::param::page_size() as u64;
            ftruncate(&fd, 2 * page + SIZE).unwrap();
            let ring = Ring::map(fd.as_fd(), SIZE as u32).unwrap();
            let file = File::from(fd);
            let produced = 0;
            (
                Kernel {
                    file,
                    page,
                    produced,
                },
                ring,
            )
        }

        fn write(&self, position: u64, bytes: &[u8]) {
            for (at, byte) in (position..).zip(bytes) {
                let place = 2 * self.page + at % SIZE;
                self.file.write_all_at(&[*byte], place).unwrap();
            }
        }

        fn produce(&mut self, flags: u32, record: &[u8]) {
            let head = record.len() as u32 | flags;
            self.write(self.produced, &head.to_ne_bytes());
            self.write(self.produced + HEAD, record);
            self.produced += (HEAD + record.len() as u64).next_multiple_of(8);
            let produced = self.produced.to_ne_bytes();
            self.file.write_all_at(&produced, self.page).unwrap();
        }

        fn consumed(&self) -> u64 {
            let mut bytes = [0; 8];
            self.file.read_exact_at(&mut bytes, 0).unwrap();
            u64::from_ne_bytes(bytes)
        }
    }

    fn all(ring: &mut Ring) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        ring.consume(&mut |together: &[&[u8]]| {
            assert!((1..=TOGETHER).contains(&together.len()));
            for record in together {
                assert_eq!(record.as_ptr().align_offset(8), 0);
                records.push(record.to_vec());
            }
        });
        records
    }

    #[test]
    fn records_come_whole_wherever_the_ring_ends() {
        let (mut kernel, mut ring) = Kernel::new();
        for round in 0..400u32 {
            let records: Vec<Vec<u8>> = (0..3)
                .map(|i| {
                    (0..100 + (round * 7 + i) % 300)
                        .map(|b| (b + round) as u8)
                        .collect()
                })
                .collect();
            records.iter().for_each(|record| kernel.produce(0, record));
            assert_eq!(all(&mut ring), records);
            assert_eq!(kernel.consumed(), kernel.produced);
        }
    }

    #[test]
    fn many_records_come_in_order_and_each_once() {
        let (mut kernel, mut ring) = Kernel::new();
        for round in 0..20u8 {
            let records: Vec<Vec<u8>> = (0..100)
                .map(|i| vec![i ^ round; 1 + i as usize % 20])
                .collect();
            for record in &records {
                if record.len().is_multiple_of(5) {
                    kernel.produce(DISCARDED, b"not");
                }
                kernel.produce(0, record);
            }
            assert_eq!(all(&mut ring), records);
            assert_eq!(kernel.consumed(), kernel.produced);
        }
    }

    #[test]
    fn what_is_discarded_is_passed_over_and_what_is_being_written_waited_for() {
        let (mut kernel, mut ring) = Kernel::new();
        kernel.produce(0, b"one");
        kernel.produce(DISCARDED, b"not");
        let busy = kernel.produced;
        kernel.produce(BUSY, b"two");
        kernel.produce(0, b"three");
        assert_eq!(all(&mut ring), [b"one"]);
        assert_eq!(kernel.consumed(), busy);
        assert_eq!(all(&mut ring), Vec::<Vec<u8>>::new());
        kernel.write(busy, &3u32.to_ne_bytes());
        assert_eq!(all(&mut ring), [&b"two"[..], b"three"]);
    }

    #[test]
    fn no_record_is_longer_than_the_ring() {
        let (mut kernel, mut ring) = Kernel::new();
        kernel.produce(0, b"one");
        kernel.write(0, &(SIZE as u32).to_ne_bytes());
        assert_eq!(all(&mut ring), Vec::<Vec<u8>>::new());
    }
}
