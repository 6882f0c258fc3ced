#include "graph/strategy_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

using Json = nlohmann::json;

// y = dense(x, w, b), like the analysis of FullyConnected's description.
constexpr char kTable[] = R"json({
  "format": "tofu-strategy-table", "version": 1, "nodes": [-1, -1, -1, 0],
  "rows": [{
    "op": "dense", "source": "tdl/linear.py:12", "elementwise": false, "random": false,
    "vars": [{"name": "b", "extent": ["input", 0, 0]},
             {"name": "o", "extent": ["output", 0, 1]},
             {"name": "i", "extent": ["input", 0, 1]},
             {"name": "c", "extent": 7}],
    "splittable": [0, 1, 2],
    "outputs": [{"dims": [
        {"lo": {"terms": [[0, 0, 1]]}, "hi": {"terms": [[0, 1, 1]], "const": 0, "div": 1}},
        {"lo": {"terms": [[1, 0, 1]]}, "hi": {"terms": [[1, 1, 1]]}}],
      "reduce": {"2": "sum"}}],
    "inputs": [{"dims": [{"lo": {"terms": [[0, 0, 1]]}, "hi": {"terms": [[0, 1, 1]]}},
                         null],
                "pad": {"vars": [0], "fill": "-inf"}},
               {"dims": [null, null]},
               {"dims": [null], "only_first": [2]}],
    "attrs": [{"name": "num_hidden", "vars": [1], "value": {"size": 1, "times": 3}},
              {"name": "shape", "vars": [0, 1], "value": {"sizes": [0, 1]}},
              {"name": "pad", "vars": [0], "value": {"const": "(0, 0)"}},
              {"name": "out", "vars": [0], "value": {"output_shape": 0}},
              {"name": "start", "vars": [0], "value": {"begin": 0}}]}]})json";

ExampleGraph Example() {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry w = example.Variable("w", {6, 8});
  const NodeEntry b = example.Variable("b", {8});
  example.Head(example.Dense("y", x, w, b), "output");
  return example;
}

std::string ErrorOf(const Json& json) {
  ExampleGraph example = Example();
  try {
    ReadStrategyTable(json.dump(), example.graph());
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kTable);
    return error.what();
  }
  return "no error";
}

TEST(StrategyTable, ConstantsUpToALimitAreRead) {
  constexpr int64_t kLimit = int64_t{1} << 54;
  Json json = Json::parse(kTable);
  Json& constant = json["rows"][0]["outputs"][0]["dims"][0]["hi"]["const"];
  for (int64_t read : {kLimit, -kLimit}) {
    constant = read;
    EXPECT_EQ(ErrorOf(json), "no error");
  }
  for (int64_t refused : {kLimit + 1, -kLimit - 1}) {
    constant = refused;
    EXPECT_NE(ErrorOf(json).find("const"), std::string::npos);
  }
}

TEST(StrategyTable, ReadsEveryFieldOfARow) {
  ExampleGraph example = Example();
  const StrategyTable table = ReadStrategyTable(kTable, example.graph());
  EXPECT_EQ(table.row(0), nullptr);
  const StrategyRow* row = table.row(3);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->op, "dense");
  EXPECT_EQ(row->vars[3].constant, 7);
  EXPECT_EQ(row->vars[2].kind, IndexVar::Extent::kInput);
  EXPECT_EQ(row->outputs[0].reduce.at(2), Reducer::kSum);
  EXPECT_EQ(row->outputs[0].like, -1);
  EXPECT_TRUE(row->outputs[0].dims[1].hi.terms[0].upper);
  EXPECT_FALSE(row->inputs[0].dims[0].whole);
  EXPECT_TRUE(row->inputs[0].dims[1].whole);
  EXPECT_EQ(row->inputs[0].pad->fill, "-inf");
  EXPECT_EQ(row->inputs[2].only_first, std::vector<int>{2});
  EXPECT_EQ(row->attrs[0].times, 3);
  EXPECT_EQ(row->attrs[1].sizes, (std::vector<int>{0, 1}));
  EXPECT_EQ(row->attrs[2].text, "(0, 0)");
  EXPECT_EQ(row->attrs[3].kind, AttrRewrite::Kind::kOutputShape);
  EXPECT_EQ(row->attrs[4].kind, AttrRewrite::Kind::kBegin);
}

TEST(StrategyTable, WeightedPartsNameTheirWeights) {
  Json json = Json::parse(kTable);
  json["rows"][0]["outputs"][0]["reduce"]["2"] = "weighted";
  EXPECT_NE(ErrorOf(json).find("weights"), std::string::npos) << ErrorOf(json);
  json["rows"][0]["outputs"][0]["weights"] = {{"output", 0}, {"dims", {2}}};
  EXPECT_NE(ErrorOf(json).find("weights.dims"), std::string::npos) << ErrorOf(json);
  json["rows"][0]["outputs"][0]["weights"]["dims"] = {1};
  ExampleGraph example = Example();
  const StrategyTable table = ReadStrategyTable(json.dump(), example.graph());
  EXPECT_EQ(table.row(3)->outputs[0].reduce.at(2), Reducer::kWeighted);
  EXPECT_EQ(table.row(3)->outputs[0].weights->dims, std::vector<int>{1});
}

TEST(StrategyTable, AnotherVersionIsRefusedWithWhatToDo) {
  Json json = Json::parse(kTable);
  json["version"] = 2;
  EXPECT_NE(
      ErrorOf(json).find("version: found 2, expected an integer from 1 to 1; make it "
                         "again with this version of tofu"),
      std::string::npos)
      << ErrorOf(json);
}

TEST(StrategyTable, ATableThatDoesNotFitTheGraphIsRefused) {
  Json json = Json::parse(kTable);
  json["nodes"] = {-1, -1, 0};
  EXPECT_NE(ErrorOf(json).find("one row per node of the graph"), std::string::npos);

  json = Json::parse(kTable);
  json["nodes"] = {-1, -1, 0, 0};
  EXPECT_NE(ErrorOf(json).find("node \"b\", row of \"dense\": found a row, expected -1"),
            std::string::npos);

  json = Json::parse(kTable);
  json["rows"][0]["inputs"][2]["dims"] = {nullptr, nullptr};
  EXPECT_NE(ErrorOf(json).find("input 2: found 2 dimensions, expected 1"),
            std::string::npos);

  json = Json::parse(kTable);
  json["rows"][0]["vars"][0]["extent"] = {"input", 5, 0};
  EXPECT_NE(ErrorOf(json).find("extent of variable \"b\": found slot 5, expected less "
                               "than 3"),
            std::string::npos);
}

TEST(StrategyTable, AnOutputThatIsReadCannotBeCalledUnread) {
  Json json = Json::parse(kTable);
  json["rows"][0]["outputs"][0]["like"] = 1;
  EXPECT_NE(ErrorOf(json).find("node \"y\", row of \"dense\": output 0: found a head "
                               "reading it, expected no reader: the description calls it "
                               "unread"),
            std::string::npos)
      << ErrorOf(json);
  json["rows"][0]["outputs"][0]["like"] = 3;
  EXPECT_NE(ErrorOf(json).find("rows[0].outputs[0].like: found 3"), std::string::npos)
      << ErrorOf(json);

  ExampleGraph example = Example();
  Graph unread = example.graph();
  unread.heads = {{0, 0}};
  json["rows"][0]["outputs"][0]["like"] = 1;
  const StrategyTable table = ReadStrategyTable(json.dump(), unread);
  EXPECT_EQ(table.rows[0].outputs[0].like, 1);
  example.Elementwise("reader", {{3, 0}});
  Graph read = example.graph();
  read.heads = {{0, 0}};
  json["nodes"].push_back(-1);
  EXPECT_THROW(ReadStrategyTable(json.dump(), read), UserError);
}

TEST(StrategyTable, ErrorsNameThePlace) {
  Json json = Json::parse(kTable);
  json["rows"][0]["outputs"][0]["reduce"]["2"] = "mean";
  EXPECT_NE(ErrorOf(json).find("rows[0].outputs[0].reduce.2: found \"mean\", expected "
                               "\"sum\", \"max\", \"min\", \"prod\", \"logsumexp\" or "
                               "\"weighted\""),
            std::string::npos)
      << ErrorOf(json);
  json = Json::parse(kTable);
  json["rows"][0]["splittable"][0] = 4;
  EXPECT_NE(ErrorOf(json).find("rows[0].splittable[0]: found 4"), std::string::npos);
}

TEST(StrategyTable, EveryTruncatedDocumentIsAUserError) {
  ExampleGraph example = Example();
  const std::string text = kTable;
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_THROW(ReadStrategyTable(text.substr(0, length), example.graph()), UserError)
        << "at " << length;
  }
}

TEST(StrategyTable, NoForeignValueAnywhereIsMoreThanAUserError) {
  ExampleGraph example = Example();
  const Json valid = Json::parse(kTable);
  const Json flat = valid.flatten();
  const Json values[] = {-2, 1e300, "x", Json::array(), Json::object(), 1u << 31};
  int refused = 0;
  for (const auto& [path, original] : flat.items()) {
    for (const Json& value : values) {
      Json changed = valid;
      changed[Json::json_pointer(path)] = value;
      try {
        ReadStrategyTable(changed.dump(), example.graph());
      } catch (const UserError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(flat.size()) * 3);
}

}  // namespace
}  // namespace tofu
