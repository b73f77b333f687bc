use super::*;

fn chosen(body: &[u8]) -> (u64, Cost, Why) {
    let site = probe_site(body, true);
    (site.offset, site.cost, site.why)
}

const FIRST: (u64, Cost, Why) = (0, Cost::Emulated, Why::FirstIsEmulated);
const STEPPED: (u64, Cost, Why) = (0, Cost::SingleStepped, Why::NoneIsEmulated);
const fn later(offset: u64) -> (u64, Cost, Why) {
    (offset, Cost::Emulated, Why::LaterIsEmulated)
}

#[test]
fn glibcs_free_is_probed_at_its_je() {
    // test rdi,rdi; je +0xbf; push rbp
    let body = [0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0, 0, 0, 0x55];
    let site = probe_site(&body, true);
    assert_eq!(chosen(&body), later(3));
    assert_eq!(site.instruction, "je 0xc8");
}

#[test]
fn an_emulated_first_instruction_is_taken() {
    for body in [
        &[0x55][..],               // push rbp
        &[0x41, 0x54],             // push r12
        &[0xe9, 1, 0, 0, 0],       // jmp
        &[0xeb, 1],                // jmp short
        &[0x74, 1],                // je short
        &[0x0f, 0x84, 1, 0, 0, 0], // je
        &[0xe8, 1, 0, 0, 0],       // call
        &[0x90],                   // nop
        &[0x0f, 0x1f, 0x44, 0, 0], // 5-byte nop
    ] {
        assert_eq!(chosen(body), FIRST, "{body:x?}");
        // The rest need not be examined.
        assert_eq!(probe_site(body, false).cost, Cost::Emulated, "{body:x?}");
    }
}

#[test]
fn single_stepped_instructions_are_known() {
    for body in [
        &[0x48, 0x55, 0xc3][..],         // push rbp with REX.W
        &[0xff, 0x35, 0, 0, 0, 0, 0xc3], // push [rip]
        &[0x6a, 0, 0xc3],                // push 0
        &[0xff, 0xe0],                   // jmp rax
        &[0xff, 0xd0, 0xc3],             // call rax
        &[0xe3, 0, 0xc3],                // jrcxz
        &[0xf3, 0x0f, 0x1e, 0xfa, 0xc3], // endbr64
        &[0x0f, 0x1f, 0x40, 0, 0xc3],    // 4-byte nop
        &[0x66, 0x90, 0xc3],             // 2-byte nop
        &[0xf3, 0x90, 0xc3],             // pause
        &[0x41, 0x90, 0xc3],             // xchg r8,rax
        &[0xc3],                         // ret
    ] {
        assert_eq!(chosen(body), STEPPED, "{body:x?}");
    }
}

#[test]
fn endbr_is_passed_over() {
    // endbr64; push rbp
    assert_eq!(chosen(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), later(4));
}

#[test]
fn an_argument_that_changes_ends_the_search() {
    for body in [
        &[0x48, 0x89, 0xc7, 0x55][..],   // mov rdi,rax; push rbp
        &[0x31, 0xf6, 0x55],             // xor esi,esi
        &[0xb2, 0x01, 0x55],             // mov dl,1
        &[0xb5, 0x01, 0x55],             // mov ch,1
        &[0x41, 0xff, 0xc0, 0x55],       // inc r8d
        &[0x4d, 0x0f, 0x44, 0xc8, 0x55], // cmove r9,r8
        &[0x48, 0xf7, 0xe6, 0x55],       // mul rsi (writes rdx)
        &[0xf3, 0xaa, 0x55],             // rep stosb (writes rdi, rcx)
        &[0x0f, 0xa2, 0x55],             // cpuid
    ] {
        assert_eq!(chosen(body), STEPPED, "{body:x?}");
    }
}

#[test]
fn reading_arguments_and_writing_elsewhere_is_fine() {
    // mov rax,rdi; cmp byte [rip+x],0; mov r10,rsi; xor ebp,ebp; push rbx
    let body = [
        0x48, 0x89, 0xf8, 0x80, 0x3d, 1, 0, 0, 0, 0, 0x49, 0x89, 0xf2, 0x31, 0xed, 0x53,
    ];
    assert_eq!(chosen(&body), later(15));
}

#[test]
fn a_moved_stack_pointer_ends_the_search() {
    for body in [
        &[0x48, 0x83, 0xec, 0x08, 0x55][..],   // sub rsp,8; push rbp
        &[0x48, 0x8d, 0x64, 0x24, 0xf8, 0x55], // lea rsp,[rsp-8]
        &[0x6a, 0x00, 0x55],                   // push 0
        &[0x9c, 0x55],                         // pushf
        &[0xc8, 0, 0, 0, 0x55],                // enter
        &[0x5d, 0x55],                         // pop rbp
    ] {
        assert_eq!(chosen(body), STEPPED, "{body:x?}");
    }
}

#[test]
fn a_change_of_flow_ends_the_search() {
    for body in [
        &[0xff, 0xd0, 0x55][..], // call rax; push rbp
        &[0xc3, 0x55],           // ret
        &[0x0f, 0x05, 0x55],     // syscall
        &[0x0f, 0x0b, 0x55],     // ud2
        &[0xe3, 0x00, 0x55],     // jrcxz
        &[0xcc, 0x55],           // int3
    ] {
        assert_eq!(chosen(body), STEPPED, "{body:x?}");
    }
}

#[test]
fn the_search_ends_after_six_instructions() {
    let body = |before: usize| {
        // mov eax,eax
        let mut body = [0x89, 0xc0].repeat(before);
        body.push(0x55);
        body
    };
    assert_eq!(chosen(&body(5)), later(10));
    assert_eq!(chosen(&body(6)), STEPPED);
}

#[test]
fn a_jump_to_the_site_forbids_it() {
    let stepped = (0, Cost::SingleStepped, Why::JumpTarget);
    // test rdi,rdi; je +0; jmp TARGET
    let body = |target: u8| [0x48, 0x85, 0xff, 0x74, 0x00, 0xeb, target.wrapping_sub(7)];
    assert_eq!(chosen(&body(3)), stepped, "to the site");
    assert_eq!(chosen(&body(1)), stepped, "into the code before it");
    assert_eq!(
        chosen(&body(0)),
        later(3),
        "to the start: another call in effect"
    );
    assert_eq!(chosen(&body(5)), later(3), "behind it");
    assert_eq!(chosen(&body(0x70)), later(3), "out of the function");
    // The same after bytes that are not an instruction (06, 07).
    let mut far = vec![0x48, 0x85, 0xff, 0x74, 0x00, 0xc3, 0x06, 0x07];
    far.extend([0xeb, 3u8.wrapping_sub(10)]);
    assert_eq!(chosen(&far), stepped);
}

#[test]
fn without_a_size_only_the_first_instruction_is_safe() {
    let body = [0x48, 0x85, 0xff, 0x74, 0x00, 0xc3];
    let site = probe_site(&body, false);
    assert_eq!(
        (site.offset, site.cost, site.why),
        (0, Cost::SingleStepped, Why::SizeUnknown)
    );
}

#[test]
fn invalid_instructions_are_not_decoded() {
    for body in [&[][..], &[0x06], &[0x48], &[0x0f, 0x84, 0]] {
        let site = probe_site(body, true);
        assert_eq!((site.offset, site.why), (0, Why::NotDecoded), "{body:x?}");
    }
    // A good first instruction, then none.
    assert_eq!(chosen(&[0x89, 0xc0, 0x06]), STEPPED);
}

#[test]
fn only_a_plain_jump_forwards() {
    use Forward::{Through, To};
    for (body, expected) in [
        (&[0xeb, 0x10][..], Some(To(0x12))),
        (&[0xe9, 0xf0, 0xff, 0xff, 0xff], Some(To(-11))),
        (&[0xf3, 0x0f, 0x1e, 0xfa, 0xeb, 0x10], Some(To(0x16))),
        // jmp [rip+0x10], bnd jmp [rip-0x10]
        (&[0xff, 0x25, 0x10, 0, 0, 0], Some(Through(0x16))),
        (
            &[0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff],
            Some(Through(-9)),
        ),
        // je; jmp rax; jmp [rax]; xor esi,esi before the jump; call
        (&[0x74, 0x10], None),
        (&[0xff, 0xe0], None),
        (&[0xff, 0x20], None),
        (&[0x31, 0xf6, 0xeb, 0x10], None),
        (&[0xe8, 0, 0, 0, 0], None),
        (&[], None),
    ] {
        assert_eq!(forwards(body), expected, "{body:x?}");
    }
}
