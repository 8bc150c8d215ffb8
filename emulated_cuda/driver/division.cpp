#include "division.h"

#include <stdint.h>
#include <string.h>

namespace emulated {
namespace {

// The processor's numbers of its registers.
const int REGISTERS[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// Reads the instruction DIV or IDIV at an address.
class Division {
 public:
  Division(const greg_t* registers) : registers_(registers) {
    code_ = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
    if (*code_ == 0x66) size_ = 2, code_++;
    if ((*code_ & 0xf0) == 0x40) prefix_ = *code_++;
    if (prefix_ & 8) size_ = 8;
    const uint8_t opcode = *code_++;
    is_division_ = (opcode | 1) == 0xf7;
    if (opcode == 0xf6) size_ = 1;
    if (is_division_) divisor_ = read_divisor();
  }

  bool is_division() const { return is_division_; }
  int size() const { return size_; }
  uint64_t mask() const { return size_ == 8 ? ~uint64_t(0) : (uint64_t(1) << size_ * 8) - 1; }
  uint64_t divisor() const { return uint64_t(divisor_) & mask(); }
  const uint8_t* next() const { return code_; }

 private:
  int64_t read_divisor() {
    const int mode = *code_ >> 6, low = *code_ & 7;
    code_++;
    if (mode == 3) return in_register(low);
    const int64_t address = address_in(mode, low);
    int64_t value;
    memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
  }

  int64_t in_register(int low) const {
    if (size_ == 1 && !prefix_ && low >= 4) return registers_[REGISTERS[low - 4]] >> 8;  // ah..bh
    return base(low);
  }

  int64_t base(int low) const { return registers_[REGISTERS[low | (prefix_ & 1) << 3]]; }

  int64_t address_in(int mode, int low) {
    int64_t address = 0;
    if (low == 4) {
      address = scaled(mode);
    } else if (low == 5 && mode == 0) {
      address = offset();
      return address + int64_t(code_);  // relative to the next instruction
    } else {
      address = base(low);
    }
    if (mode == 1) address += int8_t(*code_++);
    if (mode == 2) address += offset();
    return address;
  }

  int64_t scaled(int mode) {
    const int low = *code_ & 7, index = (*code_ >> 3 & 7) | (prefix_ & 2) << 2, scale = *code_ >> 6;
    code_++;
    const int64_t scaled_index = index == 4 ? 0 : registers_[REGISTERS[index]] << scale;
    return scaled_index + (low == 5 && mode == 0 ? offset() : base(low));
  }

  int32_t offset() {
    int32_t value;
    memcpy(&value, code_, sizeof value);
    code_ += sizeof value;
    return value;
  }

  const greg_t* registers_;
  const uint8_t* code_;
  int size_ = 4, prefix_ = 0;
  bool is_division_;
  int64_t divisor_ = 0;
};

}  // namespace

bool skip_division(greg_t* registers) {
  const Division division(registers);
  if (!division.is_division()) return false;
  const uint64_t mask = division.mask(), dividend = registers[REG_RAX] & mask;
  const bool by_zero = division.divisor() == 0;
  const uint64_t quotient = by_zero ? mask : dividend, remainder = by_zero ? dividend : 0;
  if (division.size() == 1) {
    registers[REG_RAX] = remainder << 8 | quotient;
  } else {
    registers[REG_RAX] = quotient;
    registers[REG_RDX] = remainder;
  }
  registers[REG_RIP] = greg_t(division.next());
  return true;
}

}  // namespace emulated
