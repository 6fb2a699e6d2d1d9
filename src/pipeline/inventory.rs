//! What a capture is and what is in it.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::capture::{IndexState, LossTotals, Reader};
use crate::event::{MappedKind, Pid, ProcessKey};
use crate::format::packed::file::Role;
use crate::format::process::ProcessRecord;
use crate::inventory::{Inventory, PackedFile};

use super::{Progress, about};

/// Counts what is in a capture. Segments are decoded, one at a time; nothing is named.
pub fn inventory(reader: &Reader, progress: &mut dyn Progress) -> Inventory {
    let header = reader.header();
    let mut inventory = Inventory {
        about: about::about(reader),
        format: reader.version(),
        kernel_release: header.kernel_release.clone(),
        kernel_build_id: header.kernel_build_id.clone(),
        arch: header.arch.clone(),
        boot_id: header.boot_id.clone(),
        start: header.start_time,
        end: reader.end().map(|end| end.time),
        file_size: reader.file_len(),
        index: match reader.index() {
            IndexState::Used => "used",
            IndexState::Scanned => "not of the whole file",
            IndexState::Missing => "none",
            IndexState::Damaged(_) => "damaged",
        },
        segments: reader.segments().len() as u64,
        ..Inventory::default()
    };
    for entry in reader.frames() {
        let descriptor = &entry.descriptor;
        let kind = descriptor.kind;
        let truncated = inventory.truncated_stacks;
        inventory.truncated_stacks = truncated.saturating_add(descriptor.truncated);
        let frames = inventory.frames.entry(kind.number()).or_default();
        frames.label = kind.label();
        frames.count += 1;
        frames.compressed = frames.compressed.saturating_add(descriptor.compressed);
        frames.content = frames.content.saturating_add(descriptor.uncompressed);
    }
    count_segments(reader, &mut inventory, progress);
    let bad_aid = reader.aids().damage;
    packed(reader, &mut inventory);
    let damage = &mut inventory.about.damage;
    damage.extend(bad_aid.iter().map(ToString::to_string));
    progress.done();
    inventory
}

fn count_segments(reader: &Reader, inventory: &mut Inventory, progress: &mut dyn Progress) {
    let mut processes: HashSet<ProcessKey> = HashSet::new();
    let mut images: HashSet<(ProcessKey, u32)> = HashSet::new();
    let mut threads: HashSet<(ProcessKey, Pid)> = HashSet::new();
    // Paths can be long: two files of one hash among few thousands do not happen.
    let mut files: HashSet<u64> = HashSet::new();
    let hasher = FixedState::with_seed(1);
    let about = &mut inventory.about;
    about.samples = 0;
    for mut segment in reader.segments() {
        let mut keys: Vec<ProcessKey> = Vec::new();
        loop {
            let frame = match segment.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(damage) => {
                    about.damaged_samples = about.damaged_samples.saturating_add(damage.samples);
                    about.damage.push(damage.to_string());
                    break;
                }
            };
            let records = frame
                .tables
                .process_records
                .get(frame.new.process_records.clone());
            for record in records.unwrap_or_default() {
                match record {
                    ProcessRecord::Process { key, .. } => {
                        keys.push(*key);
                        processes.insert(*key);
                    }
                    ProcessRecord::Image {
                        process,
                        exec_number,
                        ..
                    } => {
                        if let Some(key) = keys.get(*process as usize) {
                            images.insert((*key, *exec_number));
                        }
                    }
                    _ => {}
                }
            }
            for task in frame
                .tables
                .tasks
                .get(frame.new.tasks.clone())
                .unwrap_or_default()
            {
                if let Some(key) = keys.get(task.process as usize) {
                    threads.insert((*key, task.tid));
                }
            }
            for file in frame
                .tables
                .files
                .get(frame.new.files.clone())
                .unwrap_or_default()
            {
                if file.kind == MappedKind::File {
                    let identity = (&file.path, &file.build_id, &file.version);
                    files.insert(hasher.hash_one(identity));
                }
            }
            about.samples = about.samples.saturating_add(frame.samples.len() as u64);
            let weights = frame.samples.iter().map(|sample| sample.weight);
            about.weight = weights.fold(about.weight, u64::saturating_add);
            progress.frame();
        }
        about::add_losses(about, &segment.tables().losses, &mut LossTotals::default());
    }
    inventory.processes = processes.len() as u64;
    inventory.images = images.len() as u64;
    inventory.threads = threads.len() as u64;
    inventory.files = files.len() as u64;
}

fn packed(reader: &Reader, inventory: &mut Inventory) {
    let (pack, bad_frames) = reader.pack();
    let damage = &mut inventory.about.damage;
    damage.extend(bad_frames.iter().map(ToString::to_string));
    let packed = &mut inventory.packed;
    for (key, symbols, has_table, files) in pack.listing() {
        packed.symbols += symbols as u64;
        packed.symbol_files += u64::from(symbols > 0);
        packed.tables += u64::from(has_table);
        packed
            .files
            .extend(files.into_iter().map(|file| PackedFile {
                path: String::from_utf8_lossy(&key.path).into_owned(),
                build_id: key.build_id.clone(),
                debug: file.role == Role::Debug,
                size: file.size,
                whole: file.here == file.size,
            }));
    }
}
