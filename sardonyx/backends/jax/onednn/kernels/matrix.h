// Products with a matrix of weights.
#pragma once

#include <map>
#include <numeric>

#include "product.h"

namespace sardonyx {

// oneDNN has two primitives for them. An inner product reads the transposed weights.
enum class MatrixKernel { kMatmul, kInnerProduct };

struct Matrix {
  int64_t rows, inner, columns;
  bool is_transposed;

  explicit Matrix(Reader& spec)
      : rows(spec.next()), inner(spec.next()), columns(spec.next()), is_transposed(spec.next()) {}

  // As the rows and columns of the whole, or of a part of its columns, come.
  Desc given(int data_type, int64_t pitch) const {
    return strided(data_type, {inner, columns}, is_transposed ? Dims{1, inner} : Dims{pitch, 1});
  }
  int64_t place_of(int64_t column) const { return is_transposed ? column * inner : column; }
};

inline std::shared_ptr<Piece> piece_of(const Matrix& part, int data_type, const Epilogue& epilogue,
                                       MatrixKernel kernel) {
  auto made = std::make_shared<Piece>();
  Piece& piece = *made;
  const bool is_matmul = kernel == MatrixKernel::kMatmul;
  piece.x = dense(data_type, {part.rows, part.inner});
  piece.y = dense(data_type, {part.rows, part.columns});
  if (epilogue.has_bias) {
    piece.bias = dense(data_type, is_matmul ? Dims{1, part.columns} : Dims{part.columns});
  }
  piece.rows = part.rows;
  piece.columns = piece.pitch = part.columns;
  piece.make = [=, x = piece.x, y = piece.y, bias = piece.bias](const Desc& weights,
                                                               bool is_whole) {
    Attributes attributes;
    if (is_whole) epilogue.add_to(attributes, y, true);
    dnnl_primitive_desc_t primitive;
    int status = is_matmul ? dnnl_matmul_primitive_desc_create(&primitive, engine(), x.get(),
                                                               weights.get(), bias.get(), y.get(),
                                                               attributes.get())
                           : dnnl_inner_product_forward_primitive_desc_create(
                                 &primitive, engine(), dnnl::kInference, x.get(), turned(weights).get(),
                                 bias.get(), y.get(), attributes.get());
    check(status, "product");
    return Primitive(primitive);
  };
  return made;
}

// In which form the weights of some columns are packed, and which primitive reads it.
struct MatrixForm {
  MatrixKernel kernel;
  Desc weights;

  // One for all numbers of rows: weights are packed once, whatever sizes calls have. An inner
  // product wants different forms for different numbers of rows, but is hardly slower with that of
  // one row. A matmul, which is faster with a long inner axis, wants the same one for all; if it is
  // not the other's, then its kernel is an older one.
  static std::shared_ptr<const MatrixForm> of(const Matrix& part, int data_type) {
    const int64_t one_row[] = {data_type, 1, part.inner, part.columns, part.is_transposed};
    return planned<MatrixForm>(Spec(one_row, std::size(one_row)));
  }

  explicit MatrixForm(Spec one_row) {
    Reader spec(one_row);
    const int data_type = spec.next();
    const Matrix row(spec);
    auto chosen = [&](MatrixKernel kernel) {
      return piece_of(row, data_type, Epilogue(), kernel)
          ->make(in_any_form(data_type, {row.inner, row.columns}), true);
    };
    const Primitive matmul = chosen(MatrixKernel::kMatmul), inner = chosen(MatrixKernel::kInnerProduct);
    const Desc by_matmul = matmul.desc(dnnl::kWeightsDesc);
    const Desc by_inner = turned(inner.desc(dnnl::kWeightsDesc));
    const bool is_matmul = inner.is_slow() || Strides(by_matmul) == Strides(by_inner);
    kernel = is_matmul ? MatrixKernel::kMatmul : MatrixKernel::kInnerProduct;
    weights = is_matmul ? by_matmul : by_inner;
  }

  // Whether whoever reads this reads a part of the whole's columns, as they lie there.
  bool is_within(const MatrixForm& whole) const {
    return kernel == whole.kernel && Strides(weights) == Strides(whole.weights);
  }
  // The byte at which a column begins, which must be the first of a block.
  size_t place_of(int64_t column, int64_t item) const {
    const Strides strides(weights);
    return column / strides.block_of(1) * strides.steps[1] * item;
  }
  // Parts of the columns begin at multiples of it.
  int64_t columns_together() const {
    // AVX2's blocks of 24 would make 72 of 64, by which few numbers of columns can be divided.
    const int64_t few = has_avx512() ? 64 : 48, block = Strides(weights).block_of(1);
    return (few + block - 1) / block * block;
  }
};

inline void Product::plan_matrix(Reader& spec) {
  const Matrix whole(spec);
  const auto form = MatrixForm::of(whole, data_type_);
  results_ = whole.rows * whole.columns;
  const int64_t parts = useful_parts(
      2.0 * std::max<int64_t>(whole.rows, 8) * whole.inner * whole.columns, threads_);
  if (Panels::serve(whole.rows, whole.inner, data_type_, epilogue_) && plan_panels(whole, *form, parts)) return;
  if (whole.rows <= 64 || whole.rows < 16 * parts) {
    plan_columns(whole, *form, parts);
  } else {
    plan_rows(whole, *form, parts);
  }
}

// Into how many parts the rows and the columns of a product in panels are divided: the results of a
// piece are to stay in the processor's second cache, and each thread is to have as many pieces as
// the others. Columns are divided at multiples of `step`.
struct Division {
  int64_t rows, columns;

  Division(const Matrix& whole, int64_t parts, int64_t step) {
    constexpr int64_t kRows = 256, kColumns = 192, kFewestRows = 16;
    const int64_t steps = std::max<int64_t>(whole.columns / step, 1);
    rows = (whole.rows + kRows - 1) / kRows;
    columns = std::clamp<int64_t>(whole.columns / kColumns, 1, steps);
    if (whole.rows < kFewestRows) columns = std::min(parts, steps);
    if (rows * columns < parts) columns = std::min((parts + rows - 1) / rows, steps);
    if (rows * columns < parts) {
      const int64_t most = std::max<int64_t>(whole.rows / kFewestRows, 1);
      rows = std::clamp((parts + columns - 1) / columns, rows, std::max(rows, most));
    }
    const int64_t together = parts / std::gcd(parts, rows);
    const int64_t even = (columns + together - 1) / together * together;
    if (even <= steps) columns = even;
  }
};

// False where the weights do not lie so, or those of some columns would lie otherwise.
inline bool Product::plan_panels(const Matrix& whole, const MatrixForm& form, int64_t parts) {
  if (!Panels::of(form.weights, epilogue_)) return false;
  const int64_t step = form.columns_together(), steps = (whole.columns + step - 1) / step;
  const Division division(whole, parts, step);
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const Piece>> made;
  std::vector<Placed> pieces;
  for (int64_t i = 0; i < division.columns; ++i) {
    const auto [first, last] = share(steps, i, division.columns);
    const int64_t column = first * step;
    Matrix part = whole;
    part.columns = std::min(last * step, whole.columns) - column;
    const auto part_form = MatrixForm::of(part, data_type_);
    if (!part_form->is_within(form)) return false;
    for (int64_t j = 0; j < division.rows; ++j) {
      const auto [row, end] = share(whole.rows, j, division.rows);
      part.rows = end - row;
      auto& piece = made[{part.rows, part.columns}];
      if (!piece) {
        auto one = piece_of(part, data_type_, epilogue_, form.kernel);
        one->pitch = whole.columns;
        one->use(*Panels::of(part_form->weights, epilogue_), part_form->weights, epilogue_);
        piece = std::move(one);
      }
      const int64_t y_at = row * whole.columns + column;
      pieces.push_back({piece, row * whole.inner, column, y_at, form.place_of(column, item_)});
    }
  }
  add_weights(whole.given(data_type_, whole.columns), 0, form.weights);
  pieces_ = std::move(pieces);
  return true;
}

// Each thread reads but its own part of the weights. oneDNN takes 1 ms to write the code for another
// number of rows. A few take as long as one, which is the time to read the weights, so that there is
// one code for all of these numbers.
inline void Product::plan_columns(const Matrix& whole, const MatrixForm& form, int64_t parts) {
  constexpr int64_t kFewRows = 4;
  const int64_t step = form.columns_together(), steps = (whole.columns + step - 1) / step;
  const int64_t count = std::min(parts, steps);
  std::vector<Matrix> matrices;
  std::vector<std::shared_ptr<const MatrixForm>> forms;
  for (int64_t i = 0; i < count; ++i) {
    auto [first, last] = share(steps, i, count);
    matrices.push_back(whole);
    matrices[i].columns = std::min(last * step, whole.columns) - first * step;
    matrices[i].rows = std::max(whole.rows, kFewRows);
    forms.push_back(MatrixForm::of(matrices[i], data_type_));
    pieces_.push_back({.bias_at = first * step, .y_at = first * step});
  }
  const auto is_within = [&](const auto& part) { return part->is_within(form); };
  const bool are_within = std::ranges::all_of(forms, is_within);
  if (are_within) add_weights(whole.given(data_type_, whole.columns), 0, form.weights);
  std::map<int64_t, std::shared_ptr<const Piece>> made;
  for (int64_t i = 0; i < count; ++i) {
    const Matrix& part = matrices[i];
    const int64_t column = pieces_[i].bias_at;
    if (are_within) {
      pieces_[i].weights_at = form.place_of(column, item_);
    } else {
      const Desc given = part.given(data_type_, whole.columns);
      pieces_[i].weights_at = add_weights(given, part.place_of(column), forms[i]->weights).to_at;
    }
    // Parts of as many columns read weights of the same form.
    auto& piece = made[part.columns];
    if (!piece) {
      auto one = piece_of(part, data_type_, epilogue_, forms[i]->kernel);
      one->pitch = whole.rows == 1 ? part.columns : whole.columns;
      one->rows = whole.rows;
      one->rows_more = part.rows - whole.rows;
      one->read(forms[i]->weights);
      piece = std::move(one);
    }
    pieces_[i].piece = piece;
  }
}

inline void Product::plan_rows(const Matrix& whole, const MatrixForm& form, int64_t parts) {
  add_weights(whole.given(data_type_, whole.columns), 0, form.weights);
  std::map<int64_t, std::shared_ptr<const Piece>> made;
  for (int64_t i = 0; i < parts; ++i) {
    auto [first, last] = share(whole.rows, i, parts);
    Matrix part = whole;
    part.rows = last - first;
    auto& piece = made[part.rows];
    if (!piece) {
      auto one = piece_of(part, data_type_, epilogue_, form.kernel);
      one->read(form.weights);
      piece = std::move(one);
    }
    pieces_.push_back({piece, first * whole.inner, 0, first * whole.columns});
  }
}

}  // namespace sardonyx
