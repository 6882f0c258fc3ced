// C++ errors as Python exceptions: UserError becomes tofu.errors.GraphError or
// PlanError by blame, InternalError and everything unforeseen becomes
// tofu.errors.InternalError. Memory errors and Python's own pass unchanged.
#ifndef TOFU_BINDINGS_ERRORS_H_
#define TOFU_BINDINGS_ERRORS_H_

namespace tofu {

void BindErrors();

}  // namespace tofu

#endif  // TOFU_BINDINGS_ERRORS_H_
