#include "faults.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include "division.h"
#include "fibers.h"
#include "settings.h"
#include "state.h"

namespace emulated {
namespace {

const unsigned FLUSH_DENORMALS = 0x8040;  // of results and of operands
const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};

sigjmp_buf escape;
volatile sig_atomic_t is_running = 0;
pthread_t running_thread;

void on_signal(int signal, siginfo_t* info, void* context) {
  if (!is_running || !pthread_equal(running_thread, pthread_self())) {
    struct sigaction otherwise = {};
    otherwise.sa_handler = SIG_DFL;
    sigaction(signal, &otherwise, nullptr);
    raise(signal);
    return;
  }
  if (signal == SIGFPE && skip_division(static_cast<ucontext_t*>(context)->uc_mcontext.gregs))
    return;
  if (settings().verbose)
    fprintf(stderr, "emulated CUDA: signal %d at %p in a kernel\n", signal, info->si_addr);
  if (signal == SIGFPE) abandon(cudaErrorLaunchFailure);
  abandon(is_on_a_fibers_stack(info->si_addr) ? cudaErrorHardwareStackError
                                              : cudaErrorIllegalAddress);
}

// While it lives, faults come to on_signal, on a stack of its own: a fiber's may be used up.
class Handlers {
 public:
  Handlers() {
    static char memory[64 << 10];
    stack_t stack = {memory, 0, sizeof memory};
    sigaltstack(&stack, &previous_stack_);
    struct sigaction handler = {};
    handler.sa_sigaction = on_signal;
    handler.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &handler, &previous_[i]);
  }
  ~Handlers() {
    for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &previous_[i], nullptr);
    sigaltstack(&previous_stack_, nullptr);
  }

 private:
  stack_t previous_stack_;
  struct sigaction previous_[3];
};

int run(const std::function<int()>& work) {
  running_thread = pthread_self();
  is_running = 1;
  int code = sigsetjmp(escape, 1);
  if (code == 0) code = work();
  is_running = 0;
  return code;
}

}  // namespace

void abandon(int code) { siglongjmp(escape, code); }

int guarded(const std::function<int()>& work, bool flush) {
  const unsigned control = _mm_getcsr();
  if (flush) _mm_setcsr(control | FLUSH_DENORMALS);
  int code;
  {
    Handlers handlers;
    code = run(work);
  }
  _mm_setcsr(control);
  if (code) context_fault = code;
  return code;
}

}  // namespace emulated
