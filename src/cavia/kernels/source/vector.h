// Vectors of floats as GCC and Clang have them on every processor, and blocks of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

// LANES: floats in a register. SLOTS: tiles that one product takes at a time, by two registers of channels; together
// they fill the registers that the processor has.
#if defined(__AVX512F__)
constexpr int LANES = 16, SLOTS = 12, COLUMNS = 6, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, SLOTS = 6, COLUMNS = 2, ROWS = 4;
#elif defined(__aarch64__)
constexpr int LANES = 4, SLOTS = 12, COLUMNS = 6, ROWS = 8;
#else
constexpr int LANES = 4, SLOTS = 6, COLUMNS = 2, ROWS = 4;
#endif

#define UNROLL _Pragma("GCC unroll 36")
#define INLINE_MEMBER inline __attribute__((always_inline))
#define INLINE static INLINE_MEMBER

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t mask __attribute__((vector_size(4 * LANES)));  // all bits of a lane are set where a comparison holds
typedef uint8_t bytes __attribute__((vector_size(LANES)));
typedef float vec_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint8_t bytes_in_memory __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE vec load(const float* p) { return *reinterpret_cast<const vec_in_memory*>(p); }
INLINE void store(float* p, vec v) { *reinterpret_cast<vec_in_memory*>(p) = v; }
INLINE vec all(float value) { return value - vec{}; }  // compilers know that this is the value, and + would be work
INLINE mask load_bytes(const uint8_t* p) {
  return __builtin_convertvector(*reinterpret_cast<const bytes_in_memory*>(p), mask);
}
INLINE void store_bytes(uint8_t* p, mask v) {
  *reinterpret_cast<bytes_in_memory*>(p) = __builtin_convertvector(v, bytes);
}
INLINE vec relu(vec v) { return vec{} > v ? vec{} : v; }  // a NaN stays one

INLINE void add_lanes(double* sums, vec v) {
  float lanes[LANES];
  store(lanes, v);
  for (int i = 0; i < LANES; i++) sums[i] += lanes[i];
}

INLINE double total(vec v) {
  double lanes[LANES] = {}, sum = 0;
  add_lanes(lanes, v);
  for (int i = 0; i < LANES; i++) sum += lanes[i];
  return sum;
}

// The largest of four places of a pooling window and which one it is: the first of equal ones, as PyTorch takes it.
// Where `moves` is not set (γ = 0: behind the norm all four are equal) it is the first.
INLINE void largest(vec a, vec b, vec c, vec d, mask moves, vec& value, mask& place) {
  mask is = (b > a) & moves;
  value = is ? b : a;
  place = is & 1;
  is = (c > value) & moves;
  value = is ? c : value;
  place = is ? mask{} + 2 : place;
  is = (d > value) & moves;
  value = is ? d : value;
  place = is ? mask{} + 3 : place;
}

// Numbers without a start value, on a cache line.
template <class T>
class Block {
 public:
  explicit Block(size_t count, bool zero = false)
      : data_(static_cast<T*>(::operator new(count * sizeof(T) + 64, std::align_val_t(64)))) {
    if (zero) std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
  }
  ~Block() { ::operator delete(data_, std::align_val_t(64)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  operator T*() const { return data_; }

 private:
  T* data_;
};
