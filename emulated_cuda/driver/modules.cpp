// Loads compiled kernels.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "kernels.h"
#include "settings.h"
#include "state.h"

using namespace emulated;

namespace {

// What a kernel calls for which it needs fibers.
const char* const WAITING[] = {"emulated_barrier", "emulated_barrier_count", "emulated_exchange"};

struct Symbols {
  const ElfW(Sym) * list = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;  // its second number is how many symbols there are

  explicit Symbols(void* library) {
    link_map* map;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map)) return;
    for (auto* entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
      if (entry->d_tag == DT_SYMTAB) list = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_HASH) hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
    }
  }

  bool are_readable() const { return list && names && hash; }
};

bool has_barriers(void* library) {
  const Symbols symbols(library);
  if (!symbols.are_readable()) return true;
  for (uint32_t i = 0; i < symbols.hash[1]; i++) {
    if (symbols.list[i].st_shndx != SHN_UNDEF) continue;
    for (const char* name : WAITING)
      if (!strcmp(name, symbols.names + symbols.list[i].st_name)) return true;
  }
  return false;
}

bool write_all(int file, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file, bytes, size);
    if (written <= 0) return false;
    bytes += written;
    size -= written;
  }
  return true;
}

// Loads a library from memory. The loader knows libraries by name: each gets one of its own.
void* load(const char* bytes, size_t size) {
  static size_t loaded = 0;
  char path[64];
  snprintf(path, sizeof path, "/tmp/emulated-cuda-%d-%zu.so", getpid(), loaded++);
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0) return nullptr;
  const bool written = write_all(file, bytes, size);
  close(file);
  void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!library) {
    const char* why = written ? dlerror() : "the disk is full";
    fprintf(stderr, "emulated CUDA: a kernel cannot be loaded: %s\n", why);
  }
  return library;
}

}  // namespace

API cuModuleLoadData(void** module, const void* image) {
  Locked locked(lock);
  if (context_fault) return context_fault;
  if (memcmp(image, ELFMAG, SELFMAG)) return cudaErrorInvalidKernelImage;
  auto* header = static_cast<const ElfW(Ehdr)*>(image);
  const size_t size = header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
  void* library = load(static_cast<const char*>(image), size);
  if (!library) return cudaErrorInvalidKernelImage;
  *module = new Module{library, has_barriers(library), {}};
  return 0;
}

API cuModuleLoad(void** module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return cudaErrorFileNotFound;
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < sizeof(ElfW(Ehdr))) return cudaErrorInvalidKernelImage;
  return cuModuleLoadData(module, bytes.data());
}

// Its code stays loaded, since a graph may still launch it.
API cuModuleUnload(void*) { return 0; }

API cuModuleGetFunction(void** function, void* handle, const char* name) {
  Locked locked(lock);
  auto* module = static_cast<Module*>(handle);
  auto symbol = [&](const char* prefix) {
    return dlsym(module->library, (std::string(prefix) + name).c_str());
  };
  void* thread = symbol("emulated_thread_");
  if (!thread) return cudaErrorSymbolNotFound;
  auto& entry = module->functions[name];
  if (!entry) {
    entry.reset(new Function{reinterpret_cast<void (*)(void**)>(thread),
                             reinterpret_cast<void (*)(void**)>(symbol("emulated_block_")),
                             static_cast<const unsigned*>(symbol("emulated_sizes_")),
                             dlsym(module->library, "emulated_flush") != nullptr,
                             module->has_barriers, int(SHARED_MEMORY)});
  }
  *function = entry.get();
  return 0;
}

API cuModuleGetGlobal_v2(void** pointer, size_t* size, void* module, const char* name) {
  void* symbol = dlsym(static_cast<Module*>(module)->library, name);
  if (!symbol) return cudaErrorSymbolNotFound;
  Dl_info info;
  void* entry = nullptr;
  const bool is_known = dladdr1(symbol, &info, &entry, RTLD_DL_SYMENT) && entry;
  if (size) *size = is_known ? static_cast<const ElfW(Sym)*>(entry)->st_size : 0;
  *pointer = symbol;
  return 0;
}
