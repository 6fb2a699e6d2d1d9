//! What is known of a process, as records of the open segment.

use super::Writer;
use super::model::{FirstSample, Image, Process};
use crate::capture::writer::TablesFull;
use crate::event::Timestamp;
use crate::format::process::{MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, StringId};
use crate::record::address_space::Mapping;

pub(super) fn place_in(
    writer: &mut Writer,
    mapping: &Mapping,
) -> Result<PlacedMapping, TablesFull> {
    let file = writer.file(&mapping.file)?;
    let template = MappingTemplate {
        file,
        file_offset: mapping.file_offset,
        len: mapping.end - mapping.start,
        prot: mapping.prot,
    };
    Ok(PlacedMapping {
        start: mapping.start,
        mapping: writer.mapping(&template)?,
    })
}

/// Writes all that is known of `process` into the open segment.
pub(super) fn write(
    process: &Process,
    sample: &FirstSample,
    cgroup: Option<StringId>,
    writer: &mut Writer,
) -> Result<ProcessId, TablesFull> {
    let key = sample.sampled.key;
    let id = writer.add_process(key, process.parent, process.kernel, process.origin, cgroup)?;
    for image in process.needed_from(sample.first) {
        write_image(id, image, sample.first, writer)?;
    }
    if let Some(time) = process.ended.filter(|t| *t != Timestamp::MAX) {
        writer.process(ProcessRecord::Exit { process: id, time })?;
    }
    Ok(id)
}

/// Writes an image with its mappings and names. No sample before `first` needs them.
pub(super) fn write_image(
    id: ProcessId,
    image: &Image,
    first: Timestamp,
    writer: &mut Writer,
) -> Result<(), TablesFull> {
    let (time, comm) = (image.since, writer.string(&image.comm)?);
    writer.process(ProcessRecord::Image {
        process: id,
        time,
        exec_number: image.number,
        comm,
        origin: image.origin,
    })?;
    if let Some(reason) = &image.unreadable {
        let reason = writer.string(reason.as_bytes())?;
        writer.process(ProcessRecord::Unreadable {
            process: id,
            time,
            reason,
        })?;
    }
    write_space(id, image, first.max(time), writer)
}

/// Writes mappings and names of an image: what was there at `first`, as one list; what came later, one by one.
fn write_space(
    id: ProcessId,
    image: &Image,
    first: Timestamp,
    writer: &mut Writer,
) -> Result<(), TablesFull> {
    let since = image.since;
    let (now, later) = image.space.until(first);
    let mut records = Vec::new();
    if !now.is_empty() {
        let now = image.space.main_first(now);
        let mappings = now
            .iter()
            .map(|m| place_in(writer, m))
            .collect::<Result<_, _>>()?;
        let (space, origin) = (writer.space(mappings)?, image.origin);
        records.push((
            since,
            ProcessRecord::Space {
                process: id,
                time: since,
                space,
                origin,
            },
        ));
    }
    for (time, mapping) in later {
        let placed = place_in(writer, mapping)?;
        records.push((
            *time,
            ProcessRecord::Map {
                process: id,
                time: *time,
                placed,
            },
        ));
    }
    for (time, comm) in &image.renamed {
        let comm = writer.string(comm)?;
        records.push((
            *time,
            ProcessRecord::Comm {
                process: id,
                time: *time,
                comm,
            },
        ));
    }
    records.sort_by_key(|(time, _)| *time);
    records
        .into_iter()
        .try_for_each(|(_, record)| writer.process(record))
}
