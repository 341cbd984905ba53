// The library of the fmt whose headers LibTorch brings along.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
#if FMT_VERSION < 120000
namespace detail {
#endif
template FMT_API locale_ref::locale_ref(const std::locale&);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
#if FMT_VERSION >= 120000
namespace detail {
#endif
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
