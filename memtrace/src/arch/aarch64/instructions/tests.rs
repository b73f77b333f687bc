use super::*;

fn code(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn chosen_for(reads: Reads, words: &[u32]) -> (u64, Cost, Why) {
    let site = probe_site(&code(words), true, reads);
    (site.offset, site.cost, site.why)
}

fn chosen(words: &[u32]) -> (u64, Cost, Why) {
    chosen_for(Reads::in_place(0), words)
}

const STEPPED: (u64, Cost, Why) = (0, Cost::SingleStepped, Why::NoneIsEmulated);
const fn later(offset: u64) -> (u64, Cost, Why) {
    (offset, Cost::Emulated, Why::LaterIsEmulated)
}

const STP: u32 = 0xa9bc_7bfd; // stp x29, x30, [sp, #-64]!
const MOV_X21_X0: u32 = 0xaa00_03f5;
const CBZ_X0: u32 = 0xb400_0880; // cbz x0, +0x110
const RET: u32 = 0xd65f_03c0;
const NOP: u32 = 0xd503_201f;
const BTI_C: u32 = 0xd503_245f;
const PACIASP: u32 = 0xd503_233f;

#[test]
fn glibcs_free_is_probed_at_its_first_instruction_which_is_simulated() {
    // Debian 12, libc6 2.36.
    let site = probe_site(&code(&[CBZ_X0, STP]), true, Reads::ARGUMENTS);
    assert_eq!((site.offset, site.cost), (0, Cost::Emulated));
    assert_eq!(site.why, Why::FirstIsEmulated);
    assert_eq!(site.instruction, "cbz x0, 0x110");
}

#[test]
fn glibcs_malloc_saves_its_return_address_first() {
    // Debian 12: stp; mov x29, sp; stp x23, x24, [sp, #48]; adrp x23
    let words = [STP, 0x9100_03fd, 0xa903_63f7, 0x9000_08d7];
    assert_eq!(chosen(&words), STEPPED);
    let site = probe_site(&code(&words), true, Reads::NOTHING);
    assert_eq!(site.instruction, "stp x29, x30, [sp, #-64]!");
}

#[test]
fn functions_sign_their_return_addresses_with_either_key() {
    const PACIBSP: u32 = 0xd503_237f;
    for signs in [PACIASP, PACIBSP] {
        assert!(signs_returns(&code(&[BTI_C, signs, STP])));
    }
    // autiasp
    assert!(!signs_returns(&code(&[BTI_C, STP, 0xd503_23bf, RET])));
}

#[test]
fn a_site_is_behind_instructions_that_only_compute() {
    for passed in [
        MOV_X21_X0,
        BTI_C,
        NOP,
        0xf100_041f, // cmp x0, #1
        0xfa43_8022, // ccmp x1, x3, #2, hi
        0xf940_0301, // ldr x1, [x24]
        0xf85f_8301, // ldur x1, [x24, #-8]
        0xf876_6a81, // ldr x1, [x20, x22]
        0xb980_0421, // ldrsw x1, [x1, #4]
        0xa940_0c02, // ldp x2, x3, [x0]
        0x3dc0_0000, // ldr q0, [x0]
        0xd53b_d054, // mrs x20, tpidr_el0
        0x9e67_0025, // fmov d5, x1
        0x9bc1_7c02, // umulh x2, x0, x1
        0x8b21_4001, // add x1, x0, w1, uxtw
        0xd280_00b0, // mov x16, #5
        0x58ff_f823, // ldr x3, literal
        0xb100_0c3f, // cmn x1, #3
        0x9100_03e1, // mov x1, sp
    ] {
        assert_eq!(chosen(&[passed, CBZ_X0, RET]), later(4), "{passed:#x}");
    }
}

#[test]
fn no_site_is_behind_anything_else() {
    for stops in [
        STP,
        PACIASP,     // the return address is signed
        0xaa1e_03e1, // mov x1, x30
        0x9b01_7802, // madd x2, x0, x1, x30
        0xaa01_03fe, // mov x30, x1
        0x9100_013f, // mov sp, x9
        0xd100_83ff, // sub sp, sp, #0x20
        0xd140_07ff, // sub sp, sp, #1, lsl #12
        0x927c_ed3f, // and sp, x9, #-16
        0x8b21_43ff, // add sp, sp, w1, uxtw
        0xf840_8f01, // ldr x1, [x24, #8]!
        0xf840_8701, // ldr x1, [x24], #8
        0xa8c1_0c02, // ldp x2, x3, [x0], #16
        0xf900_0020, // str x0, [x1]
        0x3900_4020, // strb w0, [x1, #16]
        0x3d80_0000, // str q0, [x0]
        0xa900_0440, // stp x0, x1, [x2]
        0xc85f_7c21, // ldxr x1, [x1]
        0xc8a0_7c41, // cas x0, x1, [x2]
        0xf820_8041, // swp x0, x1, [x2]
        0xd51b_d054, // msr tpidr_el0, x20
        0xd503_3bbf, // dmb ish
        0xd400_0001, // svc #0
        0xd420_7d00, // brk #1000
    ] {
        assert_eq!(chosen(&[stops, CBZ_X0, RET]), STEPPED, "{stops:#x}");
    }
}

#[test]
fn simulated_instructions_are_sites() {
    for (word, text) in [
        (0x5400_0040, "b.eq 0x8"),
        (0x35ff_f9a3, "cbnz w3, 0xffffffffffffff34"),
        (0x360f_f9a0, "tbz w0, #1, 0xffffffffffffff34"),
        (0xb7ff_f995, "tbnz x21, #63, 0xffffffffffffff30"),
        (0x1000_0041, "adr x1, 0x8"),
        (0xb000_0010, "adrp x16, .+0x1000"),
        (0xf0ff_fff0, "adrp x16, .-0x1000"),
        (0x1400_0002, "b 0x8"),
        (0x9400_0002, "bl 0x8"),
        (0xd61f_0220, "br x17"),
        (0xd63f_0020, "blr x1"),
        (RET, "ret"),
        (0xd65f_0120, "ret x9"),
    ] {
        let site = probe_site(&code(&[word, RET]), true, Reads::NOTHING);
        let found = (site.cost, site.instruction.as_str());
        assert_eq!(found, (Cost::Emulated, text), "{word:#x}");
    }
    // Others of their classes are refused or stepped: retaa, ldr literal, nop, bti.
    for (word, text) in [
        (0xd65f_0bff, ".inst 0xd65f0bff"),
        (0x58ff_f823, ".inst 0x58fff823"),
        (NOP, "nop"),
        (BTI_C, "bti c"),
        (PACIASP, "paciasp"),
        (0xd100_83ff, "sub sp, sp, #0x20"),
        (0x9140_07ff, "add sp, sp, #0x1000"),
        (MOV_X21_X0, "mov x21, x0"),
    ] {
        let site = probe_site(&code(&[word, STP]), true, Reads::NOTHING);
        let found = (site.cost, site.instruction.as_str());
        assert_eq!(found, (Cost::SingleStepped, text), "{word:#x}");
    }
}

#[test]
fn an_argument_may_be_read_from_another_register() {
    let moved = |words: &[u32]| {
        let site = probe_site(&code(words), true, Reads::anywhere(0));
        (site.cost == Cost::Emulated).then(|| (site.offset, site.arguments.register(0)))
    };
    const MOV_X1_X0: u32 = 0xaa00_03e1;
    const MOV_X0_5: u32 = 0xd280_00a0;
    assert_eq!(moved(&[MOV_X1_X0, MOV_X0_5, CBZ_X0]), Some((8, 1)));
    assert_eq!(
        moved(&[MOV_X1_X0, CBZ_X0]),
        Some((4, 0)),
        "its own is preferred"
    );
    // A copy of the lower half, and one that is not in an argument register.
    assert_eq!(moved(&[0x2a00_03e1, MOV_X0_5, CBZ_X0]), None);
    assert_eq!(moved(&[MOV_X21_X0, MOV_X0_5, CBZ_X0]), None);
    // Behind an `adrp` without the argument: adrp x0; mov x0, x1.
    let words = [MOV_X1_X0, 0x9000_0000, 0xaa01_03e0, CBZ_X0];
    assert_eq!(moved(&words), Some((4, 0)));
    // One that loads do not leave alone.
    assert_eq!(moved(&[0xf940_0020, CBZ_X0]), None);
}

#[test]
fn a_walk_needs_the_callers_frame() {
    // mov x29, x0
    let words = [0xaa00_03fd, CBZ_X0];
    assert_eq!(chosen_for(Reads::NOTHING, &words), later(4));
    assert_eq!(chosen_for(Reads::FRAME, &words), STEPPED);
}

#[test]
fn a_place_that_a_jump_leads_to_is_none() {
    // mov x21, x0; cbz x0; b.eq to the second; ret
    let words = [MOV_X21_X0, CBZ_X0, 0x54ff_ffe0, RET];
    let jumped = (0, Cost::SingleStepped, Why::JumpTarget);
    assert_eq!(chosen(&words), jumped);
    // To the first: a new beginning.
    assert_eq!(chosen(&[MOV_X21_X0, CBZ_X0, 0x54ff_ffc0, RET]), later(4));
    let unknown = probe_site(&code(&words[..2]), false, Reads::NOTHING);
    assert_eq!((unknown.offset, unknown.why), (0, Why::SizeUnknown));
}

#[test]
fn bytes_that_are_too_few_are_not_decoded() {
    let site = probe_site(&[0, 0, 0], true, Reads::NOTHING);
    assert_eq!((site.cost, site.why), (Cost::Unknown, Why::NotDecoded));
    assert!(returns(&[]).is_empty());
    assert_eq!(forwards(&[1], 0), None);
}

#[test]
fn returns_are_the_only_ends() {
    assert_eq!(
        returns(&code(&[CBZ_X0 & !0xff_ffe0 | 0x40, RET, RET])),
        [4, 8]
    );
    // b out of the function; br; retaa; a branch out of it.
    for word in [0x1400_0040, 0xd61f_0220, 0xd65f_0bff, 0xb400_0880] {
        assert!(returns(&code(&[word, RET])).is_empty(), "{word:#x}");
    }
    // A system call and a trap are not.
    assert_eq!(returns(&code(&[0xd400_0001, RET, 0xd420_7d00])), [4]);
}

#[test]
fn functions_that_only_jump_are_known() {
    assert_eq!(
        forwards(&code(&[0x1400_0004]), 0x5_0000),
        Some(Forward::To(16))
    );
    assert_eq!(
        forwards(&code(&[BTI_C, NOP, 0x17ff_ffff]), 0),
        Some(Forward::To(4))
    );
    assert_eq!(forwards(&code(&[MOV_X21_X0, 0x1400_0004]), 0), None);
    // A stub: adrp x16, +0x1000; ldr x17, [x16, #3440]; add x16, x16, #3440; br x17
    let stub = [0xb000_0010, 0xf946_ba11, 0x9135_c210, 0xd61f_0220];
    let slot = 0x2_8000 + 3440 - 0x2_72b0;
    assert_eq!(
        forwards(&code(&stub), 0x2_72b0),
        Some(Forward::Through(slot))
    );
    let with_marker = [BTI_C, stub[0], stub[1], stub[2], stub[3]];
    assert_eq!(
        forwards(&code(&with_marker), 0x2_72b0),
        Some(Forward::Through(slot))
    );
    // To another register's address.
    let other = [stub[0], stub[1], stub[2], 0xd61f_0200];
    assert_eq!(forwards(&code(&other), 0x2_72b0), None);
}

#[test]
fn targets_and_addresses_are_computed_from_the_place() {
    let body = code(&[0x1400_0002, 0x54ff_ffe0, 0x9400_0002, 0x3607_ffa0]);
    assert_eq!(
        jumps(&body, 0x1000).collect::<Vec<_>>(),
        [0x1008, 0x1000, 0x1000]
    );
    // adrp x1, +0x1000; add x2, x1, #0x10; adr x3, +8; mov x1, #5; add x2, x1, #0x10
    let body = code(&[
        0xb000_0001,
        0x9100_4022,
        0x1000_0043,
        0xd280_00a1,
        0x9100_4022,
    ]);
    let taken: Vec<u64> = addresses_taken(&body, 0x1234).collect();
    assert_eq!(taken, [0x1244, 0x2010]);
    // As glibc's makecontext: adrp x4, +0x1000; ldr x4, [x4, #3872]; ldr x5, [x4, #8]
    let body = code(&[0xb000_0004, 0xf947_9084, 0xf940_0485]);
    let loaded: Vec<u64> = words_loaded(&body, 0x1234).collect();
    assert_eq!(loaded, [0x2000 + 3872]);
}
