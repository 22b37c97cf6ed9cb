"""Archives on a Ray cluster: photos of a dataset to masks, by all machines."""

from trtpost.ray.dataset import photos_in as photos_in
from trtpost.ray.dataset import row_of as row_of
from trtpost.ray.dataset import segment_dataset as segment_dataset
