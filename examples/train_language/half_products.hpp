#pragma once

namespace bluefog::examples {

/// While this object lives, products of matrices are of bfloat16 in this thread, as torch's
/// autocast has them, if asked for; parameters stay float32.
class HalfProducts {
 public:
  enum class Wanted { No, Yes };
  explicit HalfProducts(Wanted wanted);
  HalfProducts(const HalfProducts&) = delete;
  HalfProducts& operator=(const HalfProducts&) = delete;
  ~HalfProducts();

 private:
  Wanted wanted_;
};

}  // namespace bluefog::examples
