# Finds nlohmann/json.hpp (header only) and defines the target nlohmann_json::nlohmann_json.
#
# Looks, in this order, for a CMake package (Debian's nlohmann-json3-dev), for the headers
# that the Python package nlohmann-json installs in a site-packages folder on
# CMAKE_PREFIX_PATH (as in a wheel build), and for those of the python3 on PATH.
#
# Defines: NlohmannJson_FOUND, the target nlohmann_json::nlohmann_json.

find_package(nlohmann_json 3.10 CONFIG QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
  set(_tofu_json_hints ${CMAKE_PREFIX_PATH})
  if(NOT NLOHMANN_JSON_INCLUDE_DIR)
    foreach(_tofu_python "${Python_EXECUTABLE}" "${Python3_EXECUTABLE}" python3)
      if(_tofu_python)
        execute_process(
          COMMAND "${_tofu_python}" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
          OUTPUT_VARIABLE _tofu_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        list(APPEND _tofu_json_hints "${_tofu_site}")
      endif()
    endforeach()
  endif()
  find_path(NLOHMANN_JSON_INCLUDE_DIR nlohmann/json.hpp
            HINTS ${_tofu_json_hints} PATH_SUFFIXES nlohmann_json/include include)
  mark_as_advanced(NLOHMANN_JSON_INCLUDE_DIR)
  if(NLOHMANN_JSON_INCLUDE_DIR)
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
    set_target_properties(nlohmann_json::nlohmann_json PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${NLOHMANN_JSON_INCLUDE_DIR}"
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${NLOHMANN_JSON_INCLUDE_DIR}")
  endif()
  unset(_tofu_json_hints)
  unset(_tofu_site)
endif()

if(TARGET nlohmann_json::nlohmann_json)
  set(NlohmannJson_FOUND TRUE)
else()
  set(NlohmannJson_FOUND FALSE)
  if(NlohmannJson_FIND_REQUIRED)
    message(FATAL_ERROR
      "nlohmann/json.hpp not found. Install it with 'pip install nlohmann-json==3.12.0' or, on "
      "Debian and Ubuntu, 'apt-get install nlohmann-json3-dev'.")
  endif()
endif()
