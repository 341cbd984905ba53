"""The options --save-plot-file and --plot-interactive: curves of errors, by matplotlib."""

import pathlib


def add_arguments(parser):
    parser.add_argument(
        "--save-plot-file", metavar="FILE", type=pathlib.Path, help="a picture of the errors"
    )
    parser.add_argument(
        "--plot-interactive", action="store_true", help="rank 0 shows it in a window"
    )


def check(parser, arguments):
    path = arguments.save_plot_file
    if path and not path.resolve().parent.is_dir():
        parser.error(f"--save-plot-file: expected a folder that exists, found {path.parent}")


def are_wanted(arguments):
    return bool(arguments.save_plot_file or arguments.plot_interactive)


def draw(arguments, errors):
    """`errors` by the name of a curve, for each iteration."""
    from matplotlib import pyplot

    for name, values in errors.items():
        pyplot.semilogy(values, label=name)
    pyplot.xlabel("iteration")
    pyplot.ylabel("relative error")
    pyplot.legend()
    if arguments.save_plot_file:
        pyplot.savefig(arguments.save_plot_file)
    if arguments.plot_interactive:
        pyplot.show()
    pyplot.close()
