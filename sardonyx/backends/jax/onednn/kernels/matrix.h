// Products with a matrix of weights.
#pragma once

#include "product.h"

namespace sardonyx {

struct Matrix {
  int64_t rows, inner, columns;
  bool is_transposed;
  // oneDNN is faster with few rows by another primitive, whose weights are the transposed ones.
  bool has_few_rows;

  explicit Matrix(Reader& spec)
      : rows(spec.next()),
        inner(spec.next()),
        columns(spec.next()),
        is_transposed(spec.next()),
        has_few_rows(rows <= 64) {}

  Dims weights() const { return has_few_rows ? Dims{columns, inner} : Dims{inner, columns}; }
  Desc given(int data_type, int64_t pitch) const {
    Dims strides = is_transposed ? Dims{1, inner} : Dims{pitch, 1};
    if (has_few_rows) std::swap(strides[0], strides[1]);
    return strided(data_type, weights(), strides);
  }
  int64_t place_of(int64_t column) const { return is_transposed ? column * inner : column; }
};

inline Piece piece_of(const Matrix& part, int data_type, const Epilogue& epilogue) {
  Piece piece{};
  piece.x = dense(data_type, {part.rows, part.inner});
  piece.y = dense(data_type, {part.rows, part.columns});
  bool has_few = part.has_few_rows;
  if (epilogue.has_bias) {
    piece.bias = dense(data_type, has_few ? Dims{part.columns} : Dims{1, part.columns});
  }
  piece.rows = part.rows;
  piece.columns = piece.pitch = part.columns;
  piece.make = [=, x = piece.x, y = piece.y, bias = piece.bias](const Desc& weights,
                                                               bool is_whole) {
    Attributes attributes;
    if (is_whole) epilogue.add_to(attributes, y, true);
    dnnl_primitive_desc_t made;
    int status = has_few ? dnnl_inner_product_forward_primitive_desc_create(
                               &made, engine(), dnnl::kInference, x.get(), weights.get(),
                               bias.get(), y.get(), attributes.get())
                         : dnnl_matmul_primitive_desc_create(&made, engine(), x.get(),
                                                             weights.get(), bias.get(), y.get(),
                                                             attributes.get());
    check(status, "product");
    return Primitive(made);
  };
  return piece;
}

inline void Product::plan_matrix(Reader& spec) {
  const Matrix whole(spec);
  results_ = whole.rows * whole.columns;
  const int64_t parts = useful_parts(
      2.0 * std::max<int64_t>(whole.rows, 8) * whole.inner * whole.columns, threads_);
  if (whole.has_few_rows || whole.rows < 16 * parts) {
    const int64_t blocks = (whole.columns + 63) / 64, count = std::min(parts, blocks);
    for (int64_t i = 0; i < count; ++i) {
      auto [first, last] = share(blocks, i, count);
      Matrix part = whole;
      part.columns = std::min(last * 64, whole.columns) - first * 64;
      Piece piece = piece_of(part, data_type_, epilogue_);
      piece.bias_at = piece.y_at = first * 64;
      piece.pitch = whole.rows == 1 ? piece.columns : whole.columns;
      add_weights(part.given(data_type_, whole.columns), part.place_of(first * 64),
                  in_any_form(data_type_, part.weights()), piece);
      pieces_.push_back(std::move(piece));
    }
    return;
  }
  for (int64_t i = 0; i < parts; ++i) {
    auto [first, last] = share(whole.rows, i, parts);
    Matrix part = whole;
    part.rows = last - first;
    Piece piece = piece_of(part, data_type_, epilogue_);
    piece.x_at = first * whole.inner;
    piece.y_at = first * whole.columns;
    pieces_.push_back(std::move(piece));
  }
  add_weights(whole.given(data_type_, whole.columns), 0, in_any_form(data_type_, whole.weights()),
              pieces_.front());
}

}  // namespace sardonyx
