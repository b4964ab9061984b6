package lakelog.takeover;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates expressions by RocketMQ's filter: each line of standard input has an expression and
 * properties. It prints a line for each: invalid, error, null, true or false.
 */
public final class FilterResults {
    private FilterResults() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject object = JSON.parseObject(line);
            Map<String, String> properties = new HashMap<>();
            object.getJSONObject("properties").forEach((name, value) -> properties.put(name, (String) value));
            out.append(result(object.getString("expression"), properties)).append('\n');
        }
        System.out.print(out);
        System.out.flush();
        System.exit(0);
    }

    private static String result(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Throwable invalid) {
            return "invalid";
        }
        try {
            return String.valueOf(expression.evaluate(new MessageEvaluationContext(properties)));
        } catch (Exception failed) {
            return "error";
        }
    }
}
