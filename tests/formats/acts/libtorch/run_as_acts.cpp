// Runs a TorchScript file as ACTS's TorchEdgeClassifier and TorchMetricLearning do: tensors that it
// does not own, columns selected, inference mode, the output squeezed.
//
//   run_as_acts MODEL FOLDER NODES COLUMNS SELECTED EDGES ATTRIBUTES
//
// FOLDER holds x (float32 [NODES, COLUMNS]), edge_index (int64 [2, EDGES]) and edge_attr (float32
// [EDGES, ATTRIBUTES]) as they are in memory; the model is called with the first SELECTED columns,
// with EDGES of -1 without edges, with ATTRIBUTES of 0 without their features. It writes the output's
// shape to stdout, and its float32 values to FOLDER/output.

#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

template <class T>
std::vector<T> read(const std::string &path, std::size_t size) {
  std::vector<T> values(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char *>(values.data()), sizeof(T) * size)) {
    throw std::runtime_error("cannot read " + path);
  }
  return values;
}

int main(int, char **argv) {
  c10::InferenceMode guard(true);
  const std::string folder = std::string(argv[2]) + "/";
  const auto number = [&](int i) { return std::stol(argv[i]); };
  const long nodes = number(3), columns = number(4), edges = number(6), attributes = number(7);

  torch::jit::Module model = torch::jit::load(argv[1], torch::Device(torch::kCPU));
  model.eval();

  auto x = read<float>(folder + "x", nodes * columns);
  std::vector<long> selected(number(5));
  std::iota(selected.begin(), selected.end(), 0);
  auto all = torch::from_blob(x.data(), {nodes, columns}, torch::kFloat32);
  std::vector<torch::jit::IValue> inputs{
      all.index({torch::indexing::Slice{}, torch::tensor(selected, torch::kInt64)}).clone()};

  std::vector<std::int64_t> ends;
  std::vector<float> features;
  if (edges >= 0) {
    ends = read<std::int64_t>(folder + "edge_index", 2 * edges);
    inputs.push_back(torch::from_blob(ends.data(), {2, edges}, torch::kInt64));
  }
  if (attributes > 0) {
    features = read<float>(folder + "edge_attr", edges * attributes);
    inputs.push_back(torch::from_blob(features.data(), {edges, attributes}, torch::kFloat32));
  }

  auto output = model.forward(inputs).toTensor().to(torch::kFloat32).contiguous();
  std::cout << output.sizes() << std::endl;
  std::ofstream(folder + "output", std::ios::binary)
      .write(reinterpret_cast<const char *>(output.data_ptr<float>()),
             sizeof(float) * output.numel());
}
