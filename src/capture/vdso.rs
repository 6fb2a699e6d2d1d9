//! The vdso image as it is written: names come from its tables, so the bytes of its code are left out.

use object::Endianness;
use object::elf::{FileHeader64, SHF_EXECINSTR};
use object::read::elf::{FileHeader, SectionHeader};

/// `image` with zeros for the code in it; as it is when it is no 64-bit ELF image.
pub fn without_code(image: &[u8]) -> Vec<u8> {
    let mut out = image.to_vec();
    for range in code(image).unwrap_or_default() {
        if let Some(bytes) = out.get_mut(range) {
            bytes.fill(0);
        }
    }
    out
}

/// Where sections of code are in the file.
fn code(image: &[u8]) -> Option<Vec<std::ops::Range<usize>>> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, image).ok()?;
    let executable = |section: &&<FileHeader64<Endianness> as FileHeader>::SectionHeader| {
        section.sh_flags(endian).0 & SHF_EXECINSTR.0 != 0
    };
    let range = |section: &<FileHeader64<Endianness> as FileHeader>::SectionHeader| {
        let (start, size) = section.file_range(endian)?;
        let start = usize::try_from(start).ok()?;
        Some(start..start.checked_add(usize::try_from(size).ok()?)?)
    };
    let code = sections.iter().filter(executable);
    Some(code.filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    #[test]
    fn code_is_left_out_and_tables_stay() {
        // A program with sections: this one.
        let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let out = without_code(&image);
        assert_eq!(out.len(), image.len());
        let (before, after) = (
            object::File::parse(&*image).unwrap(),
            object::File::parse(&*out).unwrap(),
        );
        for section in before.sections() {
            let name = section.name().unwrap();
            let same = after.section_by_name(name).unwrap();
            let data = same.data().unwrap();
            if name == ".text" {
                assert!(data.iter().all(|byte| *byte == 0));
            } else if !matches!(name, ".init" | ".fini" | ".plt" | ".plt.got") {
                assert!(data == section.data().unwrap(), "{name}");
            }
        }
        let names = |file: &object::File<'_>| file.symbols().filter(|s| s.is_definition()).count();
        assert_eq!(names(&before), names(&after));
    }

    #[test]
    fn what_is_no_image_stays_as_it_is() {
        for image in [&b""[..], b"\x7fELF", b"not an image at all", &[0x7f; 200]] {
            assert_eq!(without_code(image), image);
        }
    }
}
