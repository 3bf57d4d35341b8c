"""``reactive-kafka dashboards``: what shows and watches our metrics."""
