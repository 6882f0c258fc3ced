#include "fetch/multifetch_spec.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

namespace tofu {
namespace {

constexpr std::array<const char*, 5> kCombineNames = {"sum", "max", "min", "prod",
                                                      "logsumexp"};
// Sizes by MXNet's type flag; the last two are PyTorch's complex numbers.
constexpr std::array<int, 15> kElementBytes = {4, 8, 2, 1, 4, 1, 8, 1,
                                               2, 2, 4, 8, 2, 8, 16};
constexpr int kMaxCount = 1 << 20;

void AddNumbers(const Extents& values, std::string* text) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) *text += ',';
    *text += std::to_string(values[i]);
  }
}

std::string Numbers(const Extents& values) {
  std::string text;
  AddNumbers(values, &text);
  return text;
}

// The shortest text that reads as the same number; "inf" and "-inf" too.
std::string NumberText(double value) {
  char text[32];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

[[noreturn]] void Fail(const std::string& found, const std::string& expected) {
  throw SpecError("MultiFetch: found " + found + ", expected " + expected +
                  "; partition the graph again");
}

int64_t ReadNumber(const std::string& text) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0) {
    Fail("\"" + text + "\"", "a number that is not negative");
  }
  return value;
}

int ReadCount(const std::string& text) {
  const int64_t value = ReadNumber(text);
  if (value > kMaxCount) Fail(text, "at most " + std::to_string(kMaxCount));
  return static_cast<int>(value);
}

Extents ReadNumbers(const std::string& text) {
  Extents values;
  if (text.empty()) return values;
  for (const std::string& part : Split(text, ',')) values.push_back(ReadNumber(part));
  return values;
}

double ReadFill(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') Fail("fill=" + text, "a number");
  return value;
}

Combine ReadCombine(const std::string& text) {
  const auto* const found = std::find(kCombineNames.begin(), kCombineNames.end(), text);
  if (found == kCombineNames.end()) Fail("reduce=" + text, "sum, max, min or prod");
  return static_cast<Combine>(found - kCombineNames.begin());
}

// Reads source@from>to:extents#term.
TilePiece ReadPiece(const std::string& text) {
  const size_t at = text.find('@');
  const size_t arrow = text.find('>');
  const size_t colon = text.find(':');
  const size_t hash = std::min(text.find('#'), text.size());
  if (at == std::string::npos || arrow == std::string::npos ||
      colon == std::string::npos || arrow < at || colon < arrow || hash < colon) {
    Fail("the piece \"" + text + "\"", "source@from>to:extents");
  }
  TilePiece piece;
  const std::string source = text.substr(0, at);
  piece.source = source == "-" ? kNoSource : ReadCount(source);
  piece.from = ReadNumbers(text.substr(at + 1, arrow - at - 1));
  piece.to = ReadNumbers(text.substr(arrow + 1, colon - arrow - 1));
  piece.extents = ReadNumbers(text.substr(colon + 1, hash - colon - 1));
  if (hash < text.size()) piece.term = ReadCount(text.substr(hash + 1));
  return piece;
}

void AddPiece(const TilePiece& piece, bool with_term, std::string* text) {
  *text += piece.source == kNoSource ? "-" : std::to_string(piece.source);
  *text += '@';
  AddNumbers(piece.from, text);
  *text += '>';
  AddNumbers(piece.to, text);
  *text += ':';
  AddNumbers(piece.extents, text);
  if (with_term) *text += '#' + std::to_string(piece.term);
}

int64_t Volume(const Extents& extents) {
  int64_t volume = 1;
  for (int64_t extent : extents) volume *= extent;
  return volume;
}

// Whether the box from `corner` lies in an array of `shape`.
bool Fits(const Extents& corner, const Extents& extents, const Extents& shape) {
  if (corner.size() != shape.size() || extents.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (corner[d] < 0 || extents[d] < 0 || corner[d] + extents[d] > shape[d]) {
      return false;
    }
  }
  return true;
}

bool Overlap(const TilePiece& a, const TilePiece& b) {
  for (size_t d = 0; d < a.to.size(); ++d) {
    if (a.to[d] + a.extents[d] <= b.to[d] || b.to[d] + b.extents[d] <= a.to[d]) {
      return false;
    }
  }
  return true;
}

void CheckPiece(const MultiFetchSpec& spec, const TilePiece& piece) {
  const auto text = [&] {
    std::string found = "the piece \"";
    AddPiece(piece, true, &found);
    return found + '"';
  };
  if (!Fits(piece.to, piece.extents, spec.shape)) {
    Fail(text(), "a box inside the region " + Numbers(spec.shape));
  }
  if (piece.term < 0 || piece.term >= spec.num_terms) {
    Fail(text(), "a term below " + std::to_string(spec.num_terms));
  }
  if (piece.source == kNoSource) return;
  if (piece.source < 0 || piece.source >= static_cast<int>(spec.sources.size())) {
    Fail(text(), "a source below " + std::to_string(spec.sources.size()));
  }
  if (!Fits(piece.from, piece.extents, spec.sources[piece.source])) {
    Fail(text(), "a box inside its source " + Numbers(spec.sources[piece.source]));
  }
}

}  // namespace

int64_t ElementBytes(int dtype) {
  if (dtype < 0 || dtype >= static_cast<int>(kElementBytes.size())) {
    Fail("dtype=" + std::to_string(dtype), "a type flag, 0 to 14");
  }
  return kElementBytes[dtype];
}

Extents DenseStrides(const Extents& shape) {
  Extents strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

void CheckSpec(const MultiFetchSpec& spec) {
  ElementBytes(spec.dtype);
  if (spec.num_terms < 1) Fail("no term", "at least one");
  std::vector<int64_t> covered(spec.num_terms, 0);
  std::vector<std::vector<const TilePiece*>> terms(spec.num_terms);
  for (const TilePiece& piece : spec.pieces) {
    CheckPiece(spec, piece);
    for (const TilePiece* other : terms[piece.term]) {
      if (Volume(piece.extents) > 0 && Overlap(piece, *other)) {
        Fail("two pieces of one term that overlap", "pieces side by side");
      }
    }
    terms[piece.term].push_back(&piece);
    covered[piece.term] += Volume(piece.extents);
  }
  for (int64_t elements : covered) {
    if (elements != Volume(spec.shape)) {
      Fail("a term of " + std::to_string(elements) + " elements",
           "the region's " + std::to_string(Volume(spec.shape)));
    }
  }
}

std::string WriteSpec(const MultiFetchSpec& spec) {
  std::string text = "dtype=" + std::to_string(spec.dtype) +
                     " shape=" + Numbers(spec.shape) + " sources=";
  for (const Extents& source : spec.sources) {
    AddNumbers(source, &text);
    text += ';';
  }
  text += " pieces=";
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (i > 0) text += ';';
    AddPiece(spec.pieces[i], spec.num_terms > 1, &text);
  }
  if (spec.num_terms > 1) {
    text += " terms=" + std::to_string(spec.num_terms) +
            " reduce=" + kCombineNames[static_cast<size_t>(spec.reduce)];
  }
  if (spec.fill != 0) text += " fill=" + NumberText(spec.fill);
  return text;
}

MultiFetchSpec ReadSpec(const std::string& text) {
  std::map<std::string, std::string> values;
  for (const std::string& word : Split(text, ' ')) {
    const size_t equal = word.find('=');
    if (equal == std::string::npos) Fail("\"" + word + "\"", "key=value");
    values[word.substr(0, equal)] = word.substr(equal + 1);
  }
  for (const char* key : {"dtype", "shape", "sources", "pieces"}) {
    if (values.count(key) == 0) Fail("\"" + text + "\"", std::string(key) + "=...");
  }
  MultiFetchSpec spec;
  spec.dtype = ReadCount(values["dtype"]);
  spec.shape = ReadNumbers(values["shape"]);
  std::vector<std::string> sources = Split(values["sources"], ';');
  sources.pop_back();  // every source ends with a semicolon
  for (const std::string& source : sources) {
    spec.sources.push_back(ReadNumbers(source));
  }
  for (const std::string& piece : Split(values["pieces"], ';')) {
    if (!piece.empty()) spec.pieces.push_back(ReadPiece(piece));
  }
  if (values.count("terms") > 0) spec.num_terms = ReadCount(values["terms"]);
  if (values.count("reduce") > 0) spec.reduce = ReadCombine(values["reduce"]);
  if (values.count("fill") > 0) spec.fill = ReadFill(values["fill"]);
  CheckSpec(spec);
  return spec;
}

}  // namespace tofu
