// C++ errors as Python exceptions: UserError becomes tofu.errors.GraphError or
// PlanError by blame; InternalError and anything unexpected becomes
// tofu.errors.InternalError. Memory errors and Python's own errors pass unchanged.
#ifndef TOFU_BINDINGS_ERRORS_H_
#define TOFU_BINDINGS_ERRORS_H_

namespace tofu {

void BindErrors();

}  // namespace tofu

#endif  // TOFU_BINDINGS_ERRORS_H_
