# Writes the commit that is being built to a source, which changes only when that does.
# cmake -DSOURCES=DIR -DOUTPUT=FILE -P build_commit.cmake
execute_process(COMMAND git --no-optional-locks -C ${SOURCES} describe --always --exclude=* --abbrev=12 --dirty
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
string(CONCAT text "#include \"launch/job/build_commit.h\"\n\n"
       "std::string_view moesaic::build_commit() noexcept {\n  return \"${commit}\";\n}\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
