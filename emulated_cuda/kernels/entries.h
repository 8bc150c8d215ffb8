// How the driver calls a kernel: for each, three symbols that driver/modules.cpp looks up.
#pragma once

namespace emulated {

template <class T>
struct bare {
  using type = T;
};
template <class T>
struct bare<const T> {
  using type = T;
};
template <class T>
struct bare<T&> {
  using type = typename bare<T>::type;
};

// A parameter: it is copied, since the caller's memory may not be aligned for its type.
template <class T>
struct parameter {
  alignas(T) char bytes[sizeof(T)];
  explicit parameter(const void* from) { memcpy(bytes, from, sizeof(T)); }
  T& get() { return *reinterpret_cast<T*>(bytes); }
};

// Kernels may be compiled as C++11, which has no std::index_sequence.
template <int... I>
struct indices {};
template <int N, int... I>
struct first_indices : first_indices<N - 1, N - 1, I...> {};
template <int... I>
struct first_indices<0, I...> {
  using type = indices<I...>;
};

template <class... A, int... I>
inline void call(void (*kernel)(A...), void** parameters, indices<I...>) {
  kernel(parameter<typename bare<A>::type>(parameters[I]).get()...);
}

template <class... A>
inline void run_thread(void (*kernel)(A...), void** parameters) {
  call(kernel, parameters, typename first_indices<sizeof...(A)>::type());
}

template <class... A>
struct sizes {
  unsigned list[sizeof...(A) + 1] = {sizeof...(A), sizeof(typename bare<A>::type)...};
};

template <class... A>
constexpr sizes<A...> sizes_of(void (*)(A...)) {
  return {};
}

}  // namespace emulated

#define EMULATED_EXPORT extern "C" __attribute__((visibility("default")))
#define EMULATED_KERNEL(name, ...)                                     \
  EMULATED_EXPORT void emulated_thread_##name(void** parameters) {     \
    emulated::run_thread(__VA_ARGS__, parameters);                     \
  }                                                                    \
  EMULATED_EXPORT void emulated_block_##name(void** parameters) {      \
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)     \
      for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)   \
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) \
          emulated::run_thread(__VA_ARGS__, parameters);               \
  }                                                                    \
  EMULATED_EXPORT const decltype(emulated::sizes_of(__VA_ARGS__)) emulated_sizes_##name{};
