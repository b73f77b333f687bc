//! Makes the linked object small. Touches no file.

use anyhow::{Context, Result};
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// Removes the `.debug_*` sections, nine tenths of the object. The sections that the kernel and aya
/// read (`.BTF`, `.BTF.ext` with its line numbers) stay.
///
/// # Errors
/// When `linked` is not an ELF object.
pub(super) fn without_debug_sections(linked: &[u8]) -> Result<Vec<u8>> {
    let mut builder =
        Builder::read(linked).context("the linked kernel side is not an ELF object")?;
    for section in &mut builder.sections {
        let name = section.name.to_string();
        if name.starts_with(".debug_") || name.starts_with(".rel.debug_") {
            section.delete = true;
        }
    }
    builder.delete_orphan_symbols();
    // LLVM keeps the names of sections among those of symbols, the builder wants them apart.
    let names = builder.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut small = Vec::new();
    builder
        .write(&mut small)
        .context("cannot rewrite the kernel side's object")?;
    Ok(small)
}
