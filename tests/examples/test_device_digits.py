"""The example of the device loader learns, and compiles its epoch once."""

import re


def test_it_learns_in_epochs_that_are_compiled_once(run):
    output = run("device_digits.py")
    accuracies = re.findall(r"^epoch \d+: .* accuracy (\S+)%$", output, re.M)
    assert len(accuracies) == 10
    assert float(accuracies[0]) < float(accuracies[-1])
    assert float(accuracies[-1]) > 90
    assert len(re.findall(r"from within: epoch \d+ ended with a loss of", output)) == 10
    assert "compiled 1 time(s) for 10 epochs" in output
