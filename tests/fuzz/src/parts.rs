//! The input of the targets `report` and `segment`: a capture as its parts, without checksums and compression.
//!
//! ```text
//! ( u8 kind, u8 segment, u32 length, content )*
//! ```
//!
//! Kind 0 is the header's facts; the others are the format's frame kinds. Whatever is cut short counts as far as it goes, so that
//! any bytes are some parts.

/// Bytes before a part's content.
const HEAD: usize = 6;
/// Parts of one input; more are left out.
const PARTS: usize = 64;

/// A part of a capture.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// 0 for the header's facts, else the kind of a frame.
    pub kind: u8,
    /// Which segment, for frames of segments.
    pub segment: u8,
    /// Facts, or the content of the frame.
    pub content: Vec<u8>,
}

/// Takes any bytes apart.
pub fn decode(input: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>()
        && parts.len() < PARTS
    {
        let [kind, segment, a, b, c, d] = *head;
        let len = (u32::from_le_bytes([a, b, c, d]) as usize).min(behind.len());
        let (content, behind) = behind.split_at(len);
        parts.push(Part {
            kind,
            segment,
            content: content.to_vec(),
        });
        rest = behind;
    }
    parts
}

/// Puts parts together.
pub fn encode(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend([part.kind, part.segment]);
        out.extend((part.content.len() as u32).to_le_bytes());
        out.extend(&part.content);
    }
    out
}

/// The sections of a segment's frame: kind and content. What is cut short counts as far as it goes.
pub fn sections(content: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut sections = Vec::new();
    let mut rest = content;
    while let Some(([kind, a, b, c, d], behind)) = rest.split_first_chunk::<5>() {
        let len = (u32::from_le_bytes([*a, *b, *c, *d]) as usize).min(behind.len());
        let (section, behind) = behind.split_at(len);
        sections.push((*kind, section.to_vec()));
        rest = behind;
    }
    sections
}

/// The content of a segment's frame with these sections.
pub fn of_sections(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, section) in sections {
        out.push(*kind);
        out.extend((section.len() as u32).to_le_bytes());
        out.extend(section);
    }
    out
}
