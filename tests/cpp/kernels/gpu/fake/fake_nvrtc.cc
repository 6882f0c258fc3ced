// Stands in for NVRTC: an image is the source itself, which fake_driver.cc knows.
#include <cstddef>
#include <cstring>
#include <string>

#define FAKE extern "C" __attribute__((visibility("default")))

struct FakeProgram {
  std::string source;
};

FAKE int nvrtcVersion(int* major, int* minor) {
  *major = 11;
  *minor = 2;
  return 0;
}

FAKE int nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return 0;
}

FAKE int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 70;
  archs[1] = 80;
  return 0;
}

FAKE const char* nvrtcGetErrorString(int) { return "FAKE_ERROR"; }

FAKE int nvrtcCreateProgram(FakeProgram** program, const char* source, const char*, int,
                            const char* const*, const char* const*) {
  *program = new FakeProgram{source};
  return 0;
}

FAKE int nvrtcCompileProgram(FakeProgram*, int num_options, const char* const* options) {
  return num_options > 0 && std::strcmp(options[0], "--gpu-architecture=sm_80") == 0 ? 0
                                                                                     : 5;
}

FAKE int nvrtcGetProgramLogSize(FakeProgram*, size_t* size) {
  *size = 1;
  return 0;
}

FAKE int nvrtcGetProgramLog(FakeProgram*, char* log) {
  *log = '\0';
  return 0;
}

FAKE int nvrtcGetPTXSize(FakeProgram*, size_t*) { return 1; }
FAKE int nvrtcGetPTX(FakeProgram*, char*) { return 1; }

FAKE int nvrtcGetCUBINSize(FakeProgram* program, size_t* size) {
  *size = program->source.size();
  return 0;
}

FAKE int nvrtcGetCUBIN(FakeProgram* program, char* cubin) {
  std::memcpy(cubin, program->source.data(), program->source.size());
  return 0;
}

FAKE int nvrtcDestroyProgram(FakeProgram** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
