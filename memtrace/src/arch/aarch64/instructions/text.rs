//! Instructions as an assembler writes them: those that can be a site, and frequent first ones.

use super::instruction::{Flow, Instruction};

const CONDITIONS: [&str; 16] = [
    "eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv",
];

/// Addresses are those that the instructions were decoded with.
pub(super) fn of(instruction: Instruction) -> String {
    let to = instruction.register(0);
    let wide = instruction.bits(31, 1) == 1;
    match instruction.flow() {
        Flow::Jump(target) => return format!("b {target:#x}"),
        Flow::Return if instruction.register(5) == 30 => return "ret".to_owned(),
        Flow::Return => return format!("ret x{}", instruction.register(5)),
        Flow::Indirect(register) => return format!("br x{register}"),
        Flow::Call if instruction.is(0xfc00_0000, 0x9400_0000) => {
            return format!("bl {:#x}", instruction.target(0, 26));
        }
        Flow::Call => return format!("blr x{}", instruction.register(5)),
        Flow::Branch(target) => return branch(instruction, target),
        Flow::Next | Flow::Other => {}
    }
    if let Some(address) = instruction.address() {
        // A page depends on where the file has the function.
        let distance = address.cast_signed();
        let (sign, size) = (
            if distance < 0 { "-" } else { "+" },
            distance.unsigned_abs(),
        );
        return match instruction.is_page() {
            true => format!("adrp x{to}, .{sign}{size:#x}"),
            false => format!("adr x{to}, {address:#x}"),
        };
    }
    let (base, second) = (instruction.register(5), instruction.register(10));
    match instruction.word {
        0xd503_201f => "nop".to_owned(),
        0xd503_233f => "paciasp".to_owned(),
        0xd503_237f => "pacibsp".to_owned(),
        0xd503_241f => "bti".to_owned(),
        0xd503_245f => "bti c".to_owned(),
        0xd503_249f => "bti j".to_owned(),
        0xd503_24df => "bti jc".to_owned(),
        // stp Xt, Xt2, [Xn, #imm]!
        _ if instruction.is(0xffc0_0000, 0xa980_0000) => {
            let offset = instruction.signed(15, 7) * 8;
            let [base, to, second] = [name(base, "sp"), name(to, "xzr"), name(second, "xzr")];
            format!("stp {to}, {second}, [{base}, #{offset}]!")
        }
        // add, sub Xd, Xn, #imm
        _ if instruction.is(0xbf80_0000, 0x9100_0000) && wide => {
            let operation = ["add", "sub"][instruction.bits(30, 1) as usize];
            let immediate = instruction.bits(10, 12) << (12 * instruction.bits(22, 1));
            let [to, base] = [name(to, "sp"), name(base, "sp")];
            format!("{operation} {to}, {base}, #{immediate:#x}")
        }
        // mov Xd, Xm
        _ if instruction.is(0xffe0_ffe0, 0xaa00_03e0) => {
            let from = name(instruction.register(16), "xzr");
            format!("mov {}, {from}", name(to, "xzr"))
        }
        word => format!(".inst {word:#010x}"),
    }
}

fn branch(instruction: Instruction, target: u64) -> String {
    if instruction.is(0xff00_0010, 0x5400_0000) {
        let condition = CONDITIONS[instruction.bits(0, 4) as usize];
        return format!("b.{condition} {target:#x}");
    }
    let size = if instruction.bits(31, 1) == 1 {
        'x'
    } else {
        'w'
    };
    let register = match instruction.register(0) {
        31 => format!("{size}zr"),
        register => format!("{size}{register}"),
    };
    let not = if instruction.bits(24, 1) == 1 {
        "n"
    } else {
        ""
    };
    match instruction.is(0x7e00_0000, 0x3400_0000) {
        true => format!("cb{not}z {register}, {target:#x}"),
        false => {
            let bit = instruction.bits(31, 1) << 5 | instruction.bits(19, 5);
            format!("tb{not}z {register}, #{bit}, {target:#x}")
        }
    }
}

/// `of_31` is what number 31 means.
fn name(register: u8, of_31: &str) -> String {
    match register {
        31 => of_31.to_owned(),
        register => format!("x{register}"),
    }
}
