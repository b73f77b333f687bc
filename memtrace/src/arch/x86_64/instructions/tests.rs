use super::*;

fn chosen(body: &[u8]) -> (u64, Cost, Why) {
    chosen_for(Reads::ARGUMENTS, body)
}

fn chosen_for(reads: Reads, body: &[u8]) -> (u64, Cost, Why) {
    let site = probe_site(body, true, reads);
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
    let site = probe_site(&body, true, Reads::ARGUMENTS);
    assert_eq!(chosen(&body), later(3));
    assert_eq!(site.instruction, "je 0xc8");
}

#[test]
fn jemallocs_free_is_probed_at_its_jne() {
    // Debian 12, libjemalloc2 5.3.0-1: the second argument's and the third's registers are
    // overwritten, which `free` has not.
    let body = [
        0x48, 0x89, 0xf8, // mov rax,rdi
        0x48, 0x8b, 0x15, 0x0e, 0x53, 0x0a, 0x00, // mov rdx,[rip+0xa530e]
        0x48, 0x89, 0xf9, // mov rcx,rdi
        0x48, 0xc1, 0xe8, 0x1a, // shr rax,0x1a
        0x48, 0x81, 0xe1, 0x00, 0x00, 0x00, 0xc0, // and rcx,0xffffffffc0000000
        0x25, 0xf0, 0x00, 0x00, 0x00, // and eax,0xf0
        0x64, 0x48, 0x03, 0x04, 0x25, 0x00, 0x00, 0x00, 0x00, // add rax,fs:0
        0x48, 0x01, 0xd0, // add rax,rdx
        0x48, 0x3b, 0x88, 0xb0, 0x01, 0x00, 0x00, // cmp rcx,[rax+0x1b0]
        0x0f, 0x85, 0x8a, 0x00, 0x00, 0x00, // jne +0xc0
        0x48, 0x89, 0xfe, // mov rsi,rdi
    ];
    assert_eq!(chosen_for(Reads::in_place(0), &body), later(0x30));
    let of_two = Reads::in_place(0).and(Reads::in_place(2));
    assert_eq!(chosen_for(of_two, &body), STEPPED);
}

#[test]
fn an_argument_that_is_not_read_may_change() {
    // As posix_memalign(out, alignment, size): bsr rsi,rsi; push rbx
    let read = Reads::in_place(0).and(Reads::in_place(2));
    assert_eq!(chosen_for(read, &[0x48, 0x0f, 0xbd, 0xf6, 0x53]), later(4));
    for body in [
        [0x48, 0x0f, 0xbd, 0xfe, 0x53], // bsr rdi,rsi
        [0x48, 0x0f, 0xbd, 0xd6, 0x53], // bsr rdx,rsi
        [0x48, 0x0f, 0xbd, 0xe6, 0x53], // bsr rsp,rsi
    ] {
        assert_eq!(chosen_for(read, &body), STEPPED, "{body:x?}");
    }
}

/// The offset of the site, and the registers of the first three arguments.
fn moved(reads: &[u8], body: &[u8]) -> Option<(u64, [u8; 3])> {
    let reads = reads.iter().copied().map(Reads::anywhere);
    let site = probe_site(body, true, reads.fold(Reads::NOTHING, Reads::and));
    let places = [0, 1, 2].map(|index| site.arguments.register(index));
    (site.cost == Cost::Emulated).then_some((site.offset, places))
}

#[test]
fn an_argument_may_be_read_from_another_register() {
    // mimalloc's malloc: Debian 12, libmimalloc2.0 2.0.9+ds-2.
    let malloc = [
        0x48, 0x8b, 0x05, 0x49, 0xb4, 0x00, 0x00, // mov rax,[rip+0xb449]
        0x48, 0x89, 0xfe, // mov rsi,rdi
        0x64, 0x48, 0x8b, 0x38, // mov rdi,fs:[rax]
        0x48, 0x81, 0xfe, 0x00, 0x04, 0x00, 0x00, // cmp rsi,0x400
        0x77, 0x29, // ja +0x40
    ];
    assert_eq!(moved(&[0], &malloc), Some((21, [1, 1, 2])));
    assert_eq!(moved(&[0, 1], &malloc), None, "the second is lost");
    assert_eq!(chosen_for(Reads::in_place(0), &malloc), STEPPED);
    // Its realloc, which puts an argument before: mov rdx,rsi; mov rsi,rdi; mov rdi,rax; jmp
    let realloc = [
        0x48, 0x89, 0xf2, 0x48, 0x89, 0xfe, 0x48, 0x89, 0xc7, 0xe9, 1, 0, 0, 0,
    ];
    assert_eq!(moved(&[0, 1], &realloc), Some((9, [1, 2, 2])));
    // Its memalign, which exchanges two: mov rax,rdi; mov rdi,rsi; mov rsi,rax; jmp
    let memalign = [
        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xc6, 0xe9, 1, 0, 0, 0,
    ];
    assert_eq!(moved(&[0, 1], &memalign), Some((9, [1, 0, 2])));
}

#[test]
fn a_copy_that_is_changed_or_is_no_argument_register_is_none() {
    for body in [
        &[0x48, 0x89, 0xf8, 0x31, 0xff, 0x55][..], // mov rax,rdi; xor edi,edi; push rbp
        &[0x89, 0xfe, 0x31, 0xff, 0x55],           // mov esi,edi; …
        &[0x48, 0x8d, 0x77, 0x01, 0x31, 0xff, 0x55], // lea rsi,[rdi+1]; …
        &[0x48, 0x0f, 0x44, 0xf7, 0x31, 0xff, 0x55], // cmove rsi,rdi; …
        &[0x48, 0x89, 0xfe, 0x48, 0xff, 0xc6, 0x31, 0xff, 0x55], // mov rsi,rdi; inc rsi; …
        &[0x48, 0x89, 0xfe, 0x31, 0xff, 0x40, 0xb6, 0x01, 0x55], // …; mov sil,1
        &[0x66, 0x48, 0x0f, 0x6e, 0xff, 0x31, 0xff, 0x55], // movq xmm7,rdi; …
    ] {
        assert_eq!(moved(&[0], body), None, "{body:x?}");
    }
    // Its own register is preferred to a copy: mov rsi,rdi; push rbp
    assert_eq!(moved(&[0], &[0x48, 0x89, 0xfe, 0x55]), Some((3, [0, 1, 2])));
}

#[test]
fn a_nop_without_the_arguments_is_passed_but_not_a_branch() {
    // mov rax,rdi; mov rdi,rsi; (nop or je or push); mov rsi,rax; push rbp
    let body = |between: &[u8]| {
        let start = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7];
        [&start[..], between, &[0x48, 0x89, 0xc6, 0x55]].concat()
    };
    assert_eq!(moved(&[0], &body(&[0x90])), Some((10, [1, 1, 2])));
    assert_eq!(moved(&[0], &body(&[0x74, 0x00])), None);
    assert_eq!(moved(&[0], &body(&[0x53])), None);
}

#[test]
fn a_walk_needs_the_callers_frame() {
    for body in [
        &[0x31, 0xed, 0x53][..],   // xor ebp,ebp; push rbx
        &[0x48, 0x89, 0xfb, 0x55], // mov rbx,rdi; push rbp
    ] {
        let end = body.len() as u64 - 1;
        assert_eq!(chosen_for(Reads::NOTHING, body), later(end), "{body:x?}");
        assert_eq!(chosen_for(Reads::FRAME, body), STEPPED, "{body:x?}");
    }
}

#[test]
fn a_release_before_the_branch_is_probed_before_it_takes_effect() {
    // A bump allocator's free: only the last block is given back.
    let body = [
        0x48, 0x8b, 0x05, 0, 0, 0x20, 0, // mov rax,[rip+last]
        0x48, 0x89, 0x3d, 0, 0, 0x10, 0, // mov [rip+top],rdi
        0x48, 0x39, 0xf8, // cmp rax,rdi
        0x74, 0x01, // je
        0xc3, // ret
    ];
    assert_eq!(chosen_for(Reads::in_place(0), &body), STEPPED);
    let without_the_write = [&body[..7], &body[14..]].concat();
    assert_eq!(
        chosen_for(Reads::in_place(0), &without_the_write),
        later(10)
    );
}

#[test]
fn any_write_to_memory_ends_the_search() {
    for body in [
        &[0x48, 0x89, 0x07, 0x55][..],         // mov [rdi],rax
        &[0x48, 0x89, 0x44, 0x24, 0xf8, 0x55], // mov [rsp-8],rax
        &[0x48, 0xff, 0x07, 0x55],             // inc qword [rdi]
        &[0xf0, 0x48, 0xff, 0x07, 0x55],       // lock inc qword [rdi]
        &[0x48, 0x87, 0x07, 0x55],             // xchg [rdi],rax
        &[0x48, 0x0f, 0xb1, 0x0f, 0x55],       // cmpxchg [rdi],rcx
        &[0x0f, 0x94, 0x07, 0x55],             // sete [rdi]
        &[0x48, 0x0f, 0xab, 0x07, 0x55],       // bts [rdi],rax
        &[0x0f, 0x11, 0x07, 0x55],             // movups [rdi],xmm0
        &[0x0f, 0xae, 0x07, 0x55],             // fxsave [rdi]
        &[0xaa, 0x55],                         // stosb
    ] {
        assert_eq!(chosen_for(Reads::NOTHING, body), STEPPED, "{body:x?}");
    }
    for body in [
        &[0x48, 0x8b, 0x07, 0x55][..],   // mov rax,[rdi]
        &[0x48, 0x83, 0x3f, 0x00, 0x55], // cmp qword [rdi],0
        &[0x48, 0x85, 0x07, 0x55],       // test [rdi],rax
        &[0x0f, 0x18, 0x0f, 0x55],       // prefetcht0 [rdi]
        &[0x48, 0x8d, 0x47, 0x08, 0x55], // lea rax,[rdi+8]
    ] {
        let end = body.len() as u64 - 1;
        assert_eq!(chosen_for(Reads::ARGUMENTS, body), later(end), "{body:x?}");
    }
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
        assert_eq!(
            probe_site(body, false, Reads::ARGUMENTS).cost,
            Cost::Emulated,
            "{body:x?}"
        );
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
fn the_search_ends_after_sixteen_instructions() {
    let body = |before: usize| {
        // mov eax,eax
        let mut body = [0x89, 0xc0].repeat(before);
        body.push(0x55);
        body
    };
    assert_eq!(chosen(&body(15)), later(30));
    assert_eq!(chosen(&body(16)), STEPPED);
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
    let site = probe_site(&body, false, Reads::ARGUMENTS);
    assert_eq!(
        (site.offset, site.cost, site.why),
        (0, Cost::SingleStepped, Why::SizeUnknown)
    );
}

#[test]
fn invalid_instructions_are_not_decoded() {
    for body in [&[][..], &[0x06], &[0x48], &[0x0f, 0x84, 0]] {
        let site = probe_site(body, true, Reads::ARGUMENTS);
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
