// Code of products that other threads generate ahead of their first run.
#pragma once

#include <set>

#include "product.h"
#include "workers.h"

namespace sardonyx {

// For as long as this thread has other things to do.
class Generation {
 public:
  explicit Generation(std::vector<std::shared_ptr<const Kernel>> kernels)
      : kernels_(std::move(kernels)),
        products_(products_of(kernels_)),
        stages_(std::make_shared<Stages>(
            std::vector{products_.size()},
            [products = products_](size_t, size_t i) { products[i]->generate(); })),
        help_(Workers::all(), stages_, helpers(products_)) {}

  // What no other thread has begun, this one generates.
  void finish() {
    stages_->work();
    stages_->rethrow();
  }

 private:
  using Products = std::vector<const Product*>;

  static Products products_of(const std::vector<std::shared_ptr<const Kernel>>& kernels) {
    Products found;
    for (const auto& kernel : kernels) kernel->list_products(found);
    std::set<const Product*> seen;
    std::erase_if(found, [&](const Product* each) { return !seen.insert(each).second; });
    return found;
  }

  static size_t helpers(const Products& products) {
    size_t threads = 1;
    for (const Product* each : products) threads = std::max<size_t>(threads, each->threads());
    return std::min(threads - 1, products.size());
  }

  std::vector<std::shared_ptr<const Kernel>> kernels_;
  Products products_;
  std::shared_ptr<Stages> stages_;
  Workers::Help help_;
};

}  // namespace sardonyx
