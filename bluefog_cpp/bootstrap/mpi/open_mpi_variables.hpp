#pragma once

#include <string>
#include <vector>

namespace bluefog::mpi {

/// The variables that Open MPI lacks where another launcher than its own has started this process,
/// while MPI starts. Variables that are set stay; those that this object sets go with it, since
/// programs that this one starts may have another MPI.
///
/// `OPAL_PREFIX`, `PMIX_PREFIX`: Open MPI that was moved after its build, as into a wheel, has its
/// files beside its library, and looks for them where it was built. `PMIX_MCA_psec`: Slurm offers
/// PMIx several ways of showing who one is, of which a wheel knows the kernel's alone, and
/// complains of each that it does not know.
class OpenMpiVariables {
 public:
  OpenMpiVariables();
  OpenMpiVariables(const OpenMpiVariables&) = delete;
  OpenMpiVariables& operator=(const OpenMpiVariables&) = delete;
  ~OpenMpiVariables();

 private:
  void set(const char* name, const std::string& value);

  std::vector<const char*> set_;
};

}  // namespace bluefog::mpi
